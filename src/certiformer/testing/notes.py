"""What a test asked and what came out, kept for whoever runs the test. Nothing here needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..numbers import written


@dataclass(frozen=True)
class Place:
    """A set of words: its verdict, and where it is known how far it may move and at what size an attack succeeds."""

    positions: tuple[int, ...]
    words: str
    status: str
    certified: float | None = None
    attacked: float | None = None


@dataclass(frozen=True)
class Note:
    """One question of a test and its answer."""

    model: str
    text: str
    eps: float | None  # None where words were substituted, or sets given
    norm: str
    status: str
    places: tuple[Place, ...]

    @property
    def within(self) -> str:
        """What may change, in words."""
        if self.eps is not None:
            return f"within {written(self.eps)} in {self.norm}"
        return "under substitutions" if any(place.positions for place in self.places) else "in the sets given"

    def with_radii(self, radii: Mapping[tuple[int, ...], float]) -> Note:
        """The same with certified radii, where they are given."""
        return replace(self, places=tuple(replace(p, certified=radii.get(p.positions)) for p in self.places))

    def to_json(self) -> str:
        """As it stands in a JUnit file."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Note:
        """The reverse of `to_json`."""
        read: dict[str, Any] = json.loads(text)
        places = tuple(Place(**{**p, "positions": tuple(p["positions"])}) for p in read.pop("places"))
        return Note(places=places, **read)


@dataclass(frozen=True)
class Notes:
    """The questions of one test, in order; with `radii`, the radius of every set of words is looked for too."""

    radii: bool
    kept: list[Note]


_CURRENT: ContextVar[Notes | None] = ContextVar("notes", default=None)  # those of the test that runs


@contextmanager
def noting(*, radii: bool) -> Iterator[list[Note]]:
    """Keeps the questions that are asked inside."""
    notes = Notes(radii, [])
    token = _CURRENT.set(notes)
    try:
        yield notes.kept
    finally:
        _CURRENT.reset(token)


def wanted() -> bool:
    """Whether somebody wants the radii of what is proved, too."""
    notes = _CURRENT.get()
    return notes is not None and notes.radii


def noted(note: Note) -> None:
    """Keep a question, where somebody keeps them."""
    notes = _CURRENT.get()
    if notes is not None:
        notes.kept.append(note)
