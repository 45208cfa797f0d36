"""Readers for the public file formats. Every complaint names the file and the line."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..models.tokenizer import split_words

_LABEL_NAMES = {"negative": 0, "neg": 0, "positive": 1, "pos": 1}
_LABEL_COLUMNS = ("label", "labels", "class", "polarity", "sentiment")
_TEXT_COLUMNS = ("sentence", "text", "review", "phrase")
_TREE = re.compile(r"\(([0-4])\s+|([^()]+)|(\))")
_WRITTEN = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


@dataclass(frozen=True)
class Example:
    """One labelled text. `word_labels` are the treebank's own labels of its words, 0 (very negative) to 4."""

    label: int
    words: tuple[str, ...]
    word_labels: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Tree:
    """A treebank sentence: its words with their labels, and (label, first word, end) of every inner node."""

    words: tuple[str, ...]
    word_labels: tuple[int, ...]
    nodes: tuple[tuple[int, int, int], ...]

    @property
    def label(self) -> int:
        return self.nodes[-1][0] if self.nodes else self.word_labels[0]


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or gzip, numbered from 1 and without their ends."""
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"{path}, after line {number}: expected UTF-8 text, found other bytes") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path}, after line {number}: expected a whole gzip file, found a broken one") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_trees(path: Path) -> list[Tree]:
    """Stanford Sentiment Treebank trees, one a line: `(3 (2 It) (4 (2 's) ...))`."""
    trees = [_tree(line, f"{path}, line {number}") for number, line in read_lines(path) if line.strip()]
    if not trees:
        raise InputError(f"{path}, line 1: expected one tree a line, found an empty file")
    return trees


def _tree(line: str, where: str) -> Tree:
    words: list[str] = []
    word_labels: list[int] = []
    nodes: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # label and first word of the brackets still open
    position, text, finished = 0, line.strip(), False
    while position < len(text):
        match = _TREE.match(text, position)
        if match is None or finished:
            raise InputError(f"{where}: expected a tree such as (3 (2 It) (4 works)), found {text[position:][:30]!r}")
        position = match.end()
        label, leaf, _ = match.groups()
        if label is not None:
            opened.append((int(label), len(words)))
        elif leaf is not None:
            words.extend(tree_word(word) for word in leaf.split())  # a few leaves hold two, such as 2 1/2
        else:
            if not opened or opened[-1][1] == len(words):
                raise InputError(f"{where}: expected a tree, found a closing bracket too many or without a word")
            own, first = opened.pop()
            if len(word_labels) < len(words):
                if len(word_labels) != first:
                    raise InputError(f"{where}: expected every word in brackets of its own with a label")
                word_labels.extend([own] * (len(words) - first))
            else:
                nodes.append((own, first, len(words)))
            finished = not opened
    if not finished:
        raise InputError(f"{where}: expected a whole tree, found {len(opened)} brackets left open")
    return Tree(tuple(words), tuple(word_labels), tuple(nodes))


def tree_word(leaf: str) -> str:
    """A leaf as the phrases have it: lower case, brackets and slashes as themselves."""
    word = leaf.lower()
    return _WRITTEN.get(word, word).replace("\\/", "/").replace("\\*", "*")


def sentences(trees: Sequence[Tree]) -> tuple[Example, ...]:
    """The two-class sentences: neutral roots are left out."""
    return tuple(Example(int(t.label > 2), t.words, t.word_labels) for t in trees if t.label != 2)


def phrases(trees: Sequence[Tree]) -> tuple[Example, ...]:
    """Every distinct phrase of the trees that is not neutral, for when the phrases file is not at hand."""
    seen: dict[tuple[str, ...], int] = {}
    for tree in trees:
        leaves = ((label, i, i + 1) for i, label in enumerate(tree.word_labels))
        for label, first, end in (*tree.nodes, *leaves):
            if label != 2:
                seen.setdefault(tree.words[first:end], int(label > 2))
    return tuple(Example(label, words) for words, label in seen.items())


def read_table(path: Path, *, tokenized: bool = False) -> tuple[Example, ...]:
    """Label and sentence a line, tabs or commas, with or without a header, the columns in either order.

    `tokenized` texts are cut at spaces only; others are split the way the treebank is.
    """
    comma = Path(path.name.removesuffix(".gz")).suffix == ".csv"
    rows = _csv_rows(path) if comma else ((number, line.split("\t")) for number, line in read_lines(path) if line)
    examples: list[Example] = []
    columns: tuple[int, int] | None = None  # of the label and of the text
    for number, row in rows:
        where = f"{path}, line {number}"
        if columns is None:
            columns, header = _columns(row, where, separator="comma" if comma else "tab")
            if header:
                continue
        if max(columns) >= len(row):
            raise InputError(f"{where}: expected a label and a sentence, found {len(row)} fields: {_short(row)}")
        text = row[columns[1]]
        label = _label(row[columns[0]])
        if label is None:
            raise InputError(f"{where}: expected a label such as 0 or 1, found {row[columns[0]][:30]!r}")
        words = [word for word in text.lower().split(" ") if word] if tokenized else [w.text for w in split_words(text)]
        if not words:
            raise InputError(f"{where}: expected a sentence, found an empty one")
        examples.append(Example(label, tuple(words)))
    if not examples:
        raise InputError(f"{path}, line 1: expected a label and a sentence a line, found no examples")
    return tuple(examples)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}, line {start}: expected comma-separated values: {error}") from None
        if row:
            yield start, row


def _columns(row: Sequence[str], where: str, *, separator: str) -> tuple[tuple[int, int], bool]:
    """Where label and text stand, and whether this row is a header."""
    names = [field.strip().lower() for field in row]
    label = next((i for i, name in enumerate(names) if name in _LABEL_COLUMNS), None)
    text = next((i for i, name in enumerate(names) if name in _TEXT_COLUMNS), None)
    if label is not None and text is not None:
        return (label, text), True
    if len(row) >= 2 and _label(row[0]) is not None:
        return (0, len(row) - 1), False
    if len(row) == 2 and _label(row[1]) is not None:
        return (1, 0), False
    raise InputError(
        f"{where}: expected a header with 'label' and 'sentence', or a label and a sentence with a {separator} between "
        f"them, found {_short(row)}"
    )


def _label(field: str) -> int | None:
    field = field.strip()
    if field.isascii() and field.isdigit() and len(field) < 5:
        return int(field)
    return _LABEL_NAMES.get(field.lower())


def _short(row: Sequence[str]) -> str:
    return repr(" | ".join(row))[:60]
