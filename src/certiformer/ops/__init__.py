"""The ops: one object and one registry row each."""

from . import elementwise, linear, movement, normalize, product, smooth
from .base import REGISTRY, Box, Op, Planes, Slope

__all__ = [
    "REGISTRY",
    "Box",
    "Op",
    "Planes",
    "Slope",
    "elementwise",
    "linear",
    "movement",
    "normalize",
    "product",
    "smooth",
]
