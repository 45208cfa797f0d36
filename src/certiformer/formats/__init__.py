"""Files of the verification community: properties as VNN-LIB, answers as the competition wants them."""

from .instance import Instance
from .query import Case, Query
from .result import FileAnswer, Witness, result_text
from .vnnlib import parse_vnnlib, read_vnnlib

__all__ = ["Case", "FileAnswer", "Instance", "Query", "Witness", "parse_vnnlib", "read_vnnlib", "result_text"]
