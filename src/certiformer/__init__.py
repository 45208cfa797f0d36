"""certiformer: proves how far a Transformer's input embeddings can move before its prediction could change."""

from ._version import __version__
from .attack import AttackResult, attack
from .errors import CertiformerError, InputError, ModelError, UnsupportedError
from .models import Model, load
from .questions.bounds import Bounds, bounds
from .questions.importance import importance
from .questions.search import RadiusResult, radii, radius
from .questions.verdict import CertifyResult, Counterexample, certify

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
