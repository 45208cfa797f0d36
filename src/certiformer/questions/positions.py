"""Which words move: `[[1], [2]]` or "1,2" each alone, `[[1, 2]]` or "1+2" together; words may stand for positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError, short
from ..options import Place, Positions, Question

if TYPE_CHECKING:
    from .inputs import Prepared

MOST_SETS = 1_000_000
SETS = (list, tuple, set, frozenset, range)


def position_sets(prepared: Prepared, question: Question) -> list[tuple[int, ...]]:
    """The sets of positions that a question is about: those that it names, or all of `words` words each."""
    if question.positions is None:
        return _all_sets(prepared, 1 if question.words is None else question.words)
    return _named_sets(prepared, question.positions)


def _all_sets(prepared: Prepared, words: int) -> list[tuple[int, ...]]:
    free = prepared.movable
    if isinstance(words, bool) or not isinstance(words, int) or not 1 <= words <= len(free):
        raise InputError(f"words={words!r}: expected a whole number from 1 to the {len(free)} words of this input")
    count = math.comb(len(free), words)
    if count > MOST_SETS:
        raise InputError(
            f"words={words}: {count:,} sets of {len(free)} words are too many; name the ones you want in positions="
        )
    return list(itertools.combinations(free, words))


def _named_sets(prepared: Prepared, positions: Positions) -> list[tuple[int, ...]]:
    asked = f"positions={short(positions)}"
    sets: list[tuple[int, ...]] = []
    for item in _items(positions, asked):
        places = [_places(prepared, place, asked) for place in item]
        if len(places) == 1:  # a word that stands at several places: each of them alone
            sets += [(i,) for i in places[0]]
            continue
        for place, found in zip(item, places, strict=True):
            if len(found) > 1:
                raise InputError(f"{asked}: {place!r} stands at {', '.join(map(str, found))}: give the number")
        members = [found[0] for found in places]
        if len(set(members)) != len(members):
            raise InputError(f"{asked}: {list(item)} names a position twice")
        sets.append(tuple(sorted(members)))
    return sets


def _items(positions: Positions, asked: str) -> list[Sequence[Place]]:
    """The sets as they are written, each a sequence of places."""
    if isinstance(positions, str):
        written = [item.strip() for item in positions.split(",")]
        return [[_number(place.strip()) for place in item.split("+")] for item in written]
    if not isinstance(positions, Sequence) or len(positions) == 0:
        raise InputError(f'{asked}: expected sets of positions, as [[1], [2]] (or "1,2") or [[1, 2]] (or "1+2")')
    flat = [item for item in positions if isinstance(item, (int, str))]
    if len(flat) == len(positions) > 1:
        alone, together = [[x] for x in flat], [flat]
        raise InputError(
            f"{asked}: each alone, or all together? Write {short(alone)} for the one, {short(together)} for the other"
        )
    sets: list[Any] = [list(item) if isinstance(item, SETS) else [item] for item in positions]
    if [] in sets:
        raise InputError(f"{asked}: a set without a position in it")
    return sets


def _number(written: str) -> Place:
    return int(written) if written.lstrip("-").isdigit() else written


def _places(prepared: Prepared, place: Place, asked: str) -> list[int]:
    """Where a position or word is."""
    free, n = prepared.movable, len(prepared.tokens)
    if isinstance(place, str):
        found = [i for i in free if place in (prepared.tokens[i], prepared.written(i))]
        found = found or [i for i in free if prepared.tokens[i] == place.lower()]
        if not found:
            words = " ".join(f"{i}:{prepared.tokens[i]}" for i in free)
            raise InputError(f"{asked}: no word {place!r} in this input; the words are {short(words, 200)}")
        return found
    if isinstance(place, bool) or not isinstance(place, int):
        raise InputError(f"{asked}: expected positions or words, found {place!r}")
    if not 0 <= place < n:
        raise InputError(f"{asked}: position {place} is out of range, this input has positions 0 to {n - 1}")
    if prepared.special[place]:
        raise InputError(
            f"{asked}: position {place} is the special token {prepared.tokens[place]}, which is never perturbed; "
            f"the words are at {free[0]} to {free[-1]}"
        )
    return [place]
