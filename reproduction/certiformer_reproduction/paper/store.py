"""Finished cells: the store of sweeps (`certiformer.sweep.store`), with the records at hand by their key.

Files `cells*.jsonl`; lines of before there were checksums count. Stores of several machines are joined by putting their
files side by side, or one after another in one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from certiformer.sweep.store import Record as Record
from certiformer.sweep.store import Store as Lines

STEM = "cells"
FILE = f"{STEM}.jsonl"


class Store(Lines):
    """The records of a folder by their key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, stem=STEM, unsummed=True)
        self.torn = self.damaged
        self.kept = {record["key"]: record for record in self.records()}

    def get(self, key: str) -> Record | None:
        """The record of a key, where it is finished."""
        return self.kept.get(key)

    def add(self, found: Iterable[tuple[str, Record]]) -> None:
        """Keep finished cells: they are on the disk when this returns."""
        new = list(found)
        super().add(new)
        self.kept |= {key: json.loads(json.dumps({"key": key, **record})) for key, record in new}
