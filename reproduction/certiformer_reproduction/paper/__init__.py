"""The paper's tables run again: `certiformer reproduce`, or `python -m certiformer_reproduction.paper`."""

from __future__ import annotations

from .run import NAMES, reproduce
from .study import Progress, Settings
from .tables import TABLES, Table

__all__ = ["NAMES", "TABLES", "Progress", "Settings", "Table", "reproduce"]
