"""The ops: one object and one registry row each; and the rewrites of other operators to them."""

from . import aliases, convolution, elementwise, gather, linear, masked, movement, normalize, pieces, product, smooth
from .base import REGISTRY, Box, Op, Planes, Slope
from .composite import REWRITES

__all__ = [
    "REGISTRY",
    "REWRITES",
    "Box",
    "Op",
    "Planes",
    "Slope",
    "aliases",
    "convolution",
    "elementwise",
    "gather",
    "linear",
    "masked",
    "movement",
    "normalize",
    "pieces",
    "product",
    "smooth",
]
