"""certiformer: proves how far a Transformer's input embeddings can move before its prediction could change.

The public names are those of `api.__all__`, and `sweep`. They are imported when one is first asked for, since torch
takes seconds.
"""

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .api import *  # noqa: F403
    from .sweep.ask import sweep as sweep

BOTH = ("attack", "sweep")  # functions that share their name with the subpackage they come from


class _Package(ModuleType):
    """This package: public names come from the front door, and none is hidden by a subpackage of the same name."""

    def __getattr__(self, name: str) -> Any:
        missing = AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name != "__all__" and (name.startswith("__") or (name not in BOTH and find_spec(f"{__name__}.{name}"))):
            raise missing  # a part of the package that is yet to be imported
        if name == "sweep":  # it stands on the front door itself
            value = import_module(".sweep.ask", __name__).sweep
        else:
            api = import_module(".api", __name__)
            if name != "__all__" and name not in api.__all__:
                raise missing
            value = [*api.__all__, "sweep"] if name == "__all__" else getattr(api, name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in BOTH and isinstance(value, ModuleType)):  # the packages of these names leave them alone
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *import_module(".api", __name__).__all__, "sweep"})


logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet, unless a program asks
sys.modules[__name__].__class__ = _Package
