"""A PyTorch model as a small op graph."""

from .capture import capture
from .graph import Graph, Node
from .rewrite import narrowed, softmax_by_parts

__all__ = ["Graph", "Node", "capture", "narrowed", "softmax_by_parts"]
