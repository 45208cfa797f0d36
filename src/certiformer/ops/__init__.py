"""The ops: one object and one registry row each."""

from . import elementwise, linear, movement, product, smooth
from .base import REGISTRY, Box, Op, Planes, Slope

__all__ = ["REGISTRY", "Box", "Op", "Planes", "Slope", "elementwise", "linear", "movement", "product", "smooth"]
