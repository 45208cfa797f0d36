"""Nested expressions in parentheses, as text: read without recursion, and nothing in them is run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from ..errors import InputError

TOKEN = re.compile(
    r"""(?P<space>\s+|;[^\n]*)|(?P<open>\()|(?P<close>\))|\[(?P<index>[^\[\]()"]*)\]|"(?P<string>[^"\n]*)"|(?P<word>[^\s()\[\]";]+)"""
)
DEEPEST = 64


@dataclass(frozen=True)
class Word:
    """A name, a number or a sign."""

    text: str


@dataclass(frozen=True)
class Quoted:
    """What stands in quotation marks."""

    text: str


@dataclass(frozen=True)
class Index:
    """Whole numbers in brackets: sizes or places."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class List:
    """What stands in parentheses, and the line where they open."""

    items: tuple[Word | Quoted | Index | List, ...]
    line: int

    @property
    def head(self) -> str:
        """The first word."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


Item = Word | Quoted | Index | List


def wrong(line: int, message: str) -> NoReturn:
    """An error in the file that is being read."""
    raise InputError(f"line {line}: {message}")


def parse(text: str) -> list[List]:
    """The lists of a text, one after the other."""
    found: list[List] = []
    above: list[tuple[list[Item], int]] = []
    line, place = 1, 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            wrong(line, f"cannot be read: {text[place : place + 20]!r}")
        kind, value = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "open":
            if len(above) >= DEEPEST:
                wrong(line, f"more than {DEEPEST} parentheses inside each other")
            above.append(([], line))
        elif kind == "close":
            if not above:
                wrong(line, "a parenthesis is closed that was not opened")
            items, opened = above.pop()
            made = List(tuple(items), opened)
            if above:
                above[-1][0].append(made)
            else:
                found.append(made)
        elif kind != "space":
            if not above:
                wrong(line, f"expected a parenthesis, found {value[:20]!r}")
            above[-1][0].append(_item(kind, value, line))
        line += text.count("\n", place, match.end())
        place = match.end()
    if above:
        wrong(above[-1][1], "a parenthesis is never closed")
    return found


def _item(kind: str, value: str, line: int) -> Item:
    if kind == "word":
        return Word(value)
    if kind == "string":
        return Quoted(value)
    parts = [p.strip() for p in value.split(",")] if value.strip() else []
    if any(not p.isascii() or not p.isdigit() or len(p) > 9 for p in parts):
        wrong(line, f"expected whole numbers in brackets, found [{value[:30]}]")
    return Index(tuple(int(p) for p in parts))
