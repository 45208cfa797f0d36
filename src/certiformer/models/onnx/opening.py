"""An ONNX file as a model that questions can be asked about."""

from __future__ import annotations

import os

from ..model import Model
from ..pictures import shaped
from .file import read_file
from .network import Network
from .runtime import Runtime, check_agreement


def read_onnx(path: str | os.PathLike[str]) -> Model:
    """A model from a file, compared with onnxruntime; positions are patches where its first operation cuts some."""
    file = read_file(path)
    network = Network(file).eval()
    check_agreement(Runtime(file), network)
    return as_model(network, file.path.name)


def as_model(network: Network, name: str) -> Model:
    """A network as a model."""
    return shaped(Model(module=network, name=name), network.shape, network.patch())
