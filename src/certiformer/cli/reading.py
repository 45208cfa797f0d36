"""The sentences of a command: from its arguments and from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError


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
