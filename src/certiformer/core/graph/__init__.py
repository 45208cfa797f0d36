"""A PyTorch model as a small op graph."""

from .capture import agree, capture
from .graph import Graph, Node
from .rewrite import by_differences, by_parts, narrowed

__all__ = ["Graph", "Node", "agree", "by_differences", "by_parts", "capture", "narrowed"]
