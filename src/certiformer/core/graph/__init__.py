"""A PyTorch model as a small op graph."""

from .agreement import agree
from .arrange import Arrangement, arranged
from .capture import capture
from .deployed import in_float32
from .graph import Graph, Node
from .rewrite import by_differences, by_parts, differences_of, fold, narrowed, unstacked
from .sphere import on_sphere

__all__ = [
    "Arrangement",
    "Graph",
    "Node",
    "agree",
    "arranged",
    "by_differences",
    "by_parts",
    "capture",
    "differences_of",
    "fold",
    "in_float32",
    "narrowed",
    "on_sphere",
    "unstacked",
]
