"""The ops: one object and one registry row each."""

from . import cumsum, elementwise, gather, linear, movement, normalize, product, smooth, softmax, sphere
from .base import REGISTRY, Box, Op, Planes, Slope

__all__ = [
    "REGISTRY",
    "Box",
    "Op",
    "Planes",
    "Slope",
    "cumsum",
    "elementwise",
    "gather",
    "linear",
    "movement",
    "normalize",
    "product",
    "smooth",
    "softmax",
    "sphere",
]
