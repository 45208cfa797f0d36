"""The engine and the methods."""

from .api import Bounds, bounds
from .methods import METHODS, RELAXATIONS, Method, Relaxation
from .problem import Margins, Problem

__all__ = ["METHODS", "RELAXATIONS", "Bounds", "Margins", "Method", "Problem", "Relaxation", "bounds"]
