"""Rows of text from files: CSV, TSV and JSON lines as what they are, plain text a line each.

One reader for the sentences of a command and for labelled data. Every complaint names the file and the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from .. import strict
from ..errors import InputError, short

Form = Literal["text", "csv", "tsv", "jsonl", "json"]
FORMS: dict[str, Form] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
TEXT_COLUMNS = ("sentence", "text", "review", "phrase")
LABEL_COLUMNS = ("label", "labels", "class", "polarity", "sentiment")
LABEL_NAMES = {"neg": "negative", "pos": "positive", "negative": "negative", "positive": "positive"}
STDIN = "-"


@dataclass(frozen=True)
class Row:
    """A text, the line it starts on, and its label as it is written, where there is one."""

    line: int
    text: str
    label: str | None = None


@dataclass(frozen=True)
class Columns:
    """Which columns hold what, by name or by number from 1; None: found by the usual names."""

    text: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class _Place:
    text: int
    label: int | None
    header: bool


def form_of(file: str | Path) -> Form:
    """What a file holds, by its name; what is not known otherwise is plain text."""
    return FORMS.get(Path(Path(file).name.removesuffix(".gz")).suffix.lower(), "text")


def read_rows(
    file: str | Path, *, form: Form | None = None, columns: Columns | None = None, labelled: bool = False
) -> Iterator[Row]:
    """The rows of a file ("-" is stdin) that hold a text; with `labelled`, each must have a label too."""
    columns, form = columns or Columns(), form or form_of(file)
    if form == "text" and (columns.text is not None or columns.label is not None):
        raise InputError(f"{file}: this is read as plain text, which has no columns: name it .csv, .tsv or .jsonl")
    if form == "text":
        yield from (Row(number, line.strip()) for number, line in read_lines(file) if line.strip())
    elif form in ("jsonl", "json"):
        yield from _objects(file, form, columns, labelled)
    else:
        yield from _cells(file, form, columns, labelled)


def read_lines(file: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or gzip, numbered from 1 and without their ends."""
    number = 0
    try:
        with _opened(file) as opened, io.TextIOWrapper(opened, encoding="utf-8-sig", newline="\n") as text:
            for number, line in enumerate(text, 1):
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"{file}, after line {number}: expected UTF-8 text, found other bytes") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{file}, after line {number}: expected a whole gzip file, found a broken one") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None


def _opened(file: str | Path) -> BinaryIO:
    if str(file) == STDIN:
        return io.BytesIO(sys.stdin.buffer.read())
    return cast(BinaryIO, (gzip.open if Path(file).suffix == ".gz" else open)(file, "rb"))


def read_json(file: str | Path, named: str) -> Any:
    """What a JSON file holds, plain or gzip; `named` is how an error calls it."""
    try:
        with _opened(file) as opened:
            return strict.loads(opened.read())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{named}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _cells(file: str | Path, form: Form, columns: Columns, labelled: bool) -> Iterator[Row]:
    rows = _csv(file) if form == "csv" else ((n, line.split("\t")) for n, line in read_lines(file) if line.strip())
    place: _Place | None = None
    for number, row in rows:
        where = f"{file}, line {number}"
        if place is None:
            place = _columns(row, columns, labelled, where, "comma" if form == "csv" else "tab")
            width = len(row)
            if place.header:
                continue
        needed = max(place.text, -1 if place.label is None else place.label)
        if needed >= len(row):
            expected = "a label and a sentence" if labelled else f"{width} columns"
            raise InputError(f"{where}: expected {expected}, found {len(row)} fields: {_short(row)}")
        text = row[place.text].strip()
        if not text and labelled:
            raise InputError(f"{where}: expected a sentence, found an empty one")
        if text:
            yield Row(number, text, None if place.label is None else row[place.label].strip())


def _csv(file: str | Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for _, line in read_lines(file)), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{file}, line {start}: expected comma-separated values: {error}") from None
        if any(cell.strip() for cell in row):
            yield start, row


def _columns(row: Sequence[str], columns: Columns, labelled: bool, where: str, separator: str) -> _Place:
    """Where text and label stand, and whether this row is a header: that it is, a name must say."""
    names = [cell.strip().lower() for cell in row]
    header = any(name in (*TEXT_COLUMNS, *LABEL_COLUMNS) for name in names)
    text, named = _column(columns.text, TEXT_COLUMNS, names, "--text-column", where)
    label, also_named = _column(columns.label, LABEL_COLUMNS, names, "--label-column", where)
    header = header or named or also_named
    if header and text is not None and not (labelled and label is None):
        return _Place(text, label, header)
    if not header and columns == Columns():
        if len(row) >= 2 and is_label(row[0]):
            return _Place(len(row) - 1, 0, False)
        if len(row) == 2 and is_label(row[1]):
            return _Place(0, 1, False)
    if not header and text is not None and not (labelled and label is None):
        return _Place(text, label, False)
    if labelled:
        raise InputError(
            f"{where}: expected a header with 'label' and 'sentence', or a label and a sentence with a {separator} "
            f"between them, found {_short(row)}: --text-column and --label-column name others"
        )
    raise InputError(
        f"{where}: expected a header with one of {', '.join(TEXT_COLUMNS)}, found {_short(row)}: "
        "name the column of the text, or its number from 1, with --text-column"
    )


def _column(
    asked: str | None, usual: Sequence[str], names: Sequence[str], option: str, where: str
) -> tuple[int | None, bool]:
    """The place of a column and whether it was found by its name."""
    if asked is not None and asked.isascii() and asked.isdigit() and asked not in names:
        if not 1 <= int(asked) <= len(names):
            raise InputError(f"{where}: {option} {asked}: expected a column from 1 to {len(names)}")
        return int(asked) - 1, False
    wanted = usual if asked is None else (asked.strip().lower(),)
    found = [i for i, name in enumerate(names) if name in wanted]
    if asked is not None and not found:
        raise InputError(f"{where}: {option} {asked}: there is no such column; the columns are {_short(names)}")
    if len(found) > 1:
        raise InputError(f"{where}: {', '.join(names[i] for i in found)} could all be meant: say which with {option}")
    return (found[0], True) if found else (None, False)


def is_label(cell: str) -> bool:
    """Whether a cell looks like a label: a small whole number, or positive and negative."""
    cell = cell.strip()
    return (cell.isascii() and cell.isdigit() and len(cell) < 5) or cell.lower() in LABEL_NAMES


def _objects(file: str | Path, form: Form, columns: Columns, labelled: bool) -> Iterator[Row]:
    for number, value in _values(file, form):
        where = f"{file}, {'line' if form == 'jsonl' else 'item'} {number}"
        if isinstance(value, str) and not labelled:
            text, label = value, None
        elif isinstance(value, dict):
            text = _member(value, columns.text, TEXT_COLUMNS, "--text-column", where)
            label = _member(value, columns.label, LABEL_COLUMNS, "--label-column", where, needed=labelled)
        else:
            raise InputError(
                f"{where}: expected an object with a text{' and a label' * labelled}, found {short(value, 60)}"
            )
        if not isinstance(text, str):
            raise InputError(f"{where}: expected a text, found {short(text, 60)}")
        if label is not None and (isinstance(label, bool) or not isinstance(label, (str, int))):
            raise InputError(f"{where}: expected a label, a whole number or a name, found {short(label, 60)}")
        if text.strip():
            yield Row(number, text.strip(), None if label is None else str(label))
        elif labelled:
            raise InputError(f"{where}: expected a sentence, found an empty one")


def _values(file: str | Path, form: Form) -> Iterator[tuple[int, Any]]:
    if form == "jsonl":
        for number, line in read_lines(file):
            if line.strip():
                yield number, _parsed(line, f"{file}, line {number}")
        return
    content = _parsed("\n".join(line for _, line in read_lines(file)), str(file))
    if not isinstance(content, list):
        raise InputError(f"{file}: expected a JSON list of texts or objects, found {short(content, 60)}")
    yield from enumerate(content, 1)


def _parsed(text: str, where: str) -> Any:
    try:
        return strict.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: expected JSON: {error}") from None


def _member(
    value: dict[str, Any], asked: str | None, usual: Sequence[str], option: str, where: str, *, needed: bool = True
) -> Any:
    names = {key.strip().lower(): key for key in value}
    found = [names[name] for name in (usual if asked is None else (asked.strip().lower(),)) if name in names]
    if len(found) > 1:
        raise InputError(f"{where}: {', '.join(found)} could all be meant: say which with {option}")
    if not found and (needed or asked is not None):
        what = asked or " or ".join(usual)
        raise InputError(f"{where}: expected {what}, found {short(list(value), 60)}: name it with {option}")
    return value[found[0]] if found else None


def _short(row: Sequence[str]) -> str:
    return repr(" | ".join(row))[:60]
