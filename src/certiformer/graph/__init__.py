"""A PyTorch model as a small op graph."""

from .capture import capture
from .graph import Graph, Node
from .rewrite import by_differences, by_parts, narrowed

__all__ = ["Graph", "Node", "by_differences", "by_parts", "capture", "narrowed"]
