"""Readers for the public file formats. Every complaint names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .labels import Labels
from .tables import Columns, form_of, read_lines, read_rows

_TREE = re.compile(r"\(([0-4])\s+|([^()]+)|(\))")
_WRITTEN = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


@dataclass(frozen=True)
class Example:
    """One labelled text. `word_labels` are the treebank's own labels of its words, 0 (very negative) to 4."""

    label: int
    words: tuple[str, ...]
    word_labels: tuple[int, ...] | None = None
    text: str | None = None  # as it was written

    @property
    def written(self) -> str:
        """The text, or its words with spaces between them."""
        return " ".join(self.words) if self.text is None else self.text


@dataclass(frozen=True)
class Tree:
    """A treebank sentence: its words with their labels, and (label, first word, end) of every inner node."""

    words: tuple[str, ...]
    word_labels: tuple[int, ...]
    nodes: tuple[tuple[int, int, int], ...]

    @property
    def label(self) -> int:
        return self.nodes[-1][0] if self.nodes else self.word_labels[0]


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


def read_table(
    path: Path, *, tokenized: bool = False, labels: Labels | None = None, columns: Columns | None = None
) -> tuple[Example, ...]:
    """Labels and sentences of a .tsv, .csv or .jsonl file.

    `tokenized` texts are cut at spaces only; others are split the way the treebank is.
    """
    from ..models.tokenizer import split_words

    examples: list[Example] = []
    labels = labels or Labels(labels_from=0)
    form = form_of(path)
    for row in read_rows(path, form="tsv" if form == "text" else form, columns=columns, labelled=True):
        label = labels.index(row.label, f"{path}, line {row.line}")
        split = (w.text for w in split_words(row.text))
        words = tuple(word for word in row.text.lower().split(" ") if word) if tokenized else tuple(split)
        examples.append(Example(label, words, text=row.text))
    if not examples:
        raise InputError(f"{path}, line 1: expected a label and a sentence a line, found no examples")
    return tuple(examples)
