"""Results as records, as JSON and as one HTML file. What measures needs torch, and is imported when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..results import Ranked
from .html import html
from .records import Document, Failure, Place, Run, Sentence, Substitute, Verdict, from_json, to_json

if TYPE_CHECKING:
    from .measuring import document, measure, measure_many, sentence

__all__ = [
    "Document",
    "Failure",
    "Place",
    "Ranked",
    "Run",
    "Sentence",
    "Substitute",
    "Verdict",
    "document",
    "from_json",
    "html",
    "measure",
    "measure_many",
    "sentence",
    "to_json",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".measuring", __name__), name)
