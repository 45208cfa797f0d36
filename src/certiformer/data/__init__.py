"""Labelled text: SST and Yelp by name, anything else by path."""

from __future__ import annotations

from .dataset import DATA_VARIABLE, DATASETS, Dataset, Tables, load_data
from .readers import Example, Tree, read_table, read_trees

__all__ = ["DATASETS", "DATA_VARIABLE", "Dataset", "Example", "Tables", "Tree", "load_data", "read_table", "read_trees"]
