"""The sentences of a command: from its arguments and from files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError


@dataclass(frozen=True)
class Item:
    """A sentence and the line of the file it came from."""

    text: str
    line: int | None = None


def read_items(texts: Sequence[str] | None, file: str | None) -> list[Item]:
    """The sentences of the command line and of `--file`; none at all is an error."""
    items = [Item(text) for text in texts or ()]
    if file is not None:
        items += _read_file(file)
    if not items:
        where = "" if file is None else f" ({file} holds none)"
        raise InputError(f'no sentence was given{where}: put it in quotes, as in "a great film", or use --file')
    return items


def _read_file(file: str) -> list[Item]:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"--file {file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--file {file}: expected UTF-8 text, found other bytes at {error.start}") from None
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows or not (file.endswith(".tsv") or "\t" in rows[0][1]):
        return [Item(line.strip(), number) for number, line in rows]
    header = [cell.strip().lower() for cell in rows[0][1].split("\t")]
    named = [i for i, cell in enumerate(header) if cell in ("sentence", "text")]
    column = named[0] if named else len(header) - 1
    items = []
    for number, line in rows[1:] if named else rows:
        cells = line.split("\t")
        if len(cells) <= column:
            raise InputError(f"--file {file}, line {number}: expected {len(header)} columns, found {len(cells)}")
        items.append(Item(cells[column].strip(), number))
    return items
