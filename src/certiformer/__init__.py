"""certiformer: proves how far a Transformer's input embeddings can move before its prediction could change."""

from ._version import __version__
from .attack import AttackResult, attack
from .bounds import Bounds, bounds
from .errors import CertiformerError, InputError, ModelError, UnsupportedError
from .explain import importance
from .models import Model, load
from .search import RadiusResult, radii, radius
from .verdict import CertifyResult, Counterexample, certify

__all__ = [
    "AttackResult",
    "Bounds",
    "CertiformerError",
    "CertifyResult",
    "Counterexample",
    "InputError",
    "Model",
    "ModelError",
    "RadiusResult",
    "UnsupportedError",
    "__version__",
    "attack",
    "bounds",
    "certify",
    "importance",
    "load",
    "radii",
    "radius",
]
