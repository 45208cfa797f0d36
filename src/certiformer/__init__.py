"""certiformer: proves how far a Transformer's input embeddings can move before its prediction could change."""

from ._version import __version__
from .bounds import Bounds, bounds
from .errors import CertiformerError, InputError, ModelError, UnsupportedError
from .models import Model, load

__all__ = [
    "Bounds",
    "CertiformerError",
    "InputError",
    "Model",
    "ModelError",
    "UnsupportedError",
    "__version__",
    "bounds",
    "load",
]
