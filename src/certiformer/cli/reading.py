"""The sentences of a command: from its arguments and from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.tables import Columns, read_rows
from ..errors import InputError
from .options import Source

if TYPE_CHECKING:
    from ..report import Document


@dataclass(frozen=True)
class Item:
    """A sentence and the line of the file it came from."""

    text: str
    line: int | None = None


def read_items(texts: Sequence[str], source: Source) -> list[Item]:
    """The sentences of the command line and of `--file`; none at all is an error."""
    items = [Item(text) for text in texts]
    if source.file is None:
        for name, value in (("--text-column", source.text_column), ("--format", source.format)):
            if value is not None:
                raise InputError(f"{name} {value}: this is said of --file, which was not given")
    else:
        rows = read_rows(source.file, form=source.format, columns=Columns(text=source.text_column))
        items += [Item(row.text, row.line) for row in rows]
    if not items:
        where = "" if source.file is None else f" ({source.file} holds none)"
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
