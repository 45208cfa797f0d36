"""certiformer: proves how far a Transformer's input embeddings can move before its prediction could change."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .attack import AttackResult as AttackResult
    from .attack import attack as attack
    from .errors import CertiformerError as CertiformerError
    from .errors import InputError as InputError
    from .errors import ModelError as ModelError
    from .errors import UnsupportedError as UnsupportedError
    from .models import Model as Model
    from .models import load as load
    from .questions.bounds import Bounds as Bounds
    from .questions.bounds import bounds as bounds
    from .questions.importance import importance as importance
    from .questions.search import RadiusResult as RadiusResult
    from .questions.search import radii as radii
    from .questions.search import radius as radius
    from .questions.verdict import CertifyResult as CertifyResult
    from .questions.verdict import Counterexample as Counterexample
    from .questions.verdict import certify as certify

_PUBLIC = {  # where each name comes from; imported when it is first asked for, since torch takes seconds
    ".attack": ("AttackResult", "attack"),
    ".errors": ("CertiformerError", "InputError", "ModelError", "UnsupportedError"),
    ".models": ("Model", "load"),
    ".questions.bounds": ("Bounds", "bounds"),
    ".questions.importance": ("importance",),
    ".questions.search": ("RadiusResult", "radii", "radius"),
    ".questions.verdict": ("CertifyResult", "Counterexample", "certify"),
}
_HOME = {name: home for home, names in _PUBLIC.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])


class _Package(ModuleType):
    """This package: public names are imported on demand, and none is hidden by a subpackage of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME[name], __name__), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):  # importing certiformer.attack leaves cf.attack alone
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
