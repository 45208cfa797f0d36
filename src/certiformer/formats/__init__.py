"""Files of the verification community: properties as VNN-LIB, answers as the competition wants them."""

from .query import Case, Query
from .vnnlib import parse_vnnlib, read_vnnlib

__all__ = ["Case", "Query", "parse_vnnlib", "read_vnnlib"]
