"""What every ATen operator becomes: one table, keyed by the operator."""

from . import activations, arithmetic, attention, convolution, indexing, norms, plain, pooling, shapes
from .hints import nearest
from .table import TABLE, Build, Ref, Refused, Row, arguments

__all__ = [
    "TABLE",
    "Build",
    "Ref",
    "Refused",
    "Row",
    "activations",
    "arguments",
    "arithmetic",
    "attention",
    "convolution",
    "indexing",
    "nearest",
    "norms",
    "plain",
    "pooling",
    "shapes",
]
