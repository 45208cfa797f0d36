"""Finished work, a line of JSON each, so that a kill loses at most the cell it fell in.

Every file `cells*.jsonl` of the folder is read; new lines go to `cells.jsonl`. Stores of several machines are joined by
putting their files side by side, or one after another in one file: a key that comes twice is the same result.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from certiformer.errors import InputError

FILE = "cells.jsonl"
Record = dict[str, Any]


class Store:
    """The records of a folder by their key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, Record] = {}
        self.torn = 0  # lines that a kill left unfinished
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob("cells*.jsonl")):
                self._read(path)
            self._end_line(folder / FILE)
        except OSError as error:
            raise InputError(f"{folder}: cannot hold the results: {error.strerror or error}") from None

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def get(self, key: str) -> Record | None:
        """The record of a key, where it is finished."""
        return self.records.get(key)

    def add(self, key: str, record: Record) -> None:
        """Keep a finished cell: it is on the disk when this returns."""
        line = json.dumps({"key": key, **record}, ensure_ascii=False, allow_nan=False)
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.records[key] = json.loads(line)

    def _read(self, path: Path) -> None:
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
                self.records[record["key"]] = record
            except (ValueError, KeyError, TypeError):
                self.torn += 1

    @staticmethod
    def _end_line(path: Path) -> None:
        """A torn last line is closed, so that the next record starts on its own."""
        if path.exists() and path.stat().st_size:
            with path.open("rb+") as file:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
