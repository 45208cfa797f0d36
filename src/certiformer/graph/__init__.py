"""A PyTorch model as a small op graph."""

from .capture import capture
from .graph import Graph, Node
from .rewrite import softmax_by_parts

__all__ = ["Graph", "Node", "capture", "softmax_by_parts"]
