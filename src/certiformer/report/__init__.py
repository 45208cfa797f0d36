"""Results as records, as JSON and as one HTML file."""

from ..results import Ranked
from .html import html
from .measure import measure, measure_many, sentence
from .records import Document, Failure, Place, Run, Sentence, Substitute, Verdict, from_json, to_json

__all__ = [
    "Document",
    "Failure",
    "Place",
    "Ranked",
    "Run",
    "Sentence",
    "Substitute",
    "Verdict",
    "from_json",
    "html",
    "measure",
    "measure_many",
    "sentence",
    "to_json",
]
