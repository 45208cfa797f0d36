"""The sentences of a command: from its arguments and from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..report import Document


@dataclass(frozen=True)
class Item:
    """A sentence and the line of the file it came from."""

    text: str
    line: int | None = None


def read_items(texts: Sequence[str] | None, file: str | None, text_column: str | None = None) -> list[Item]:
    """The sentences of the command line and of `--file`; none at all is an error."""
    from ..data.tables import Columns, read_rows

    if file is None and text_column is not None:
        raise InputError(f"--text-column {text_column}: this is a column of --file, which was not given")
    items = [Item(text) for text in texts or ()]
    if file is not None:
        items += [Item(row.text, row.line) for row in read_rows(file, columns=Columns(text=text_column))]
    if not items:
        where = "" if file is None else f" ({file} holds none)"
        raise InputError(f'no sentence was given{where}: put it in quotes, as in "a great film", or use --file')
    return items


def read_document(path: Path, option: str) -> Document:
    """What a command wrote as JSON."""
    from ..report import from_json

    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option} {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return from_json(content, where=str(path))
