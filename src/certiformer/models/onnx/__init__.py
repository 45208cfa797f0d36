"""ONNX files as modules of PyTorch, with onnxruntime beside them to say what they compute."""

from .file import OnnxFile, read_file
from .network import Network
from .opening import as_model, read_onnx
from .runtime import Runtime, check_agreement

__all__ = [
    "Network",
    "OnnxFile",
    "Runtime",
    "as_model",
    "check_agreement",
    "read_file",
    "read_onnx",
]
