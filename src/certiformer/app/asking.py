"""What a visitor asks, checked: nothing that is not a field of `Asked` is taken from a request."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from .. import strict
from ..core.names import Budget
from ..errors import InputError, short
from ..numbers import asked

NORMS = ("1", "2", "inf")
WORDS = (1, 2, 3)  # that move together
PLACES = re.compile(r"\d+(\+\d+){0,2}", re.ASCII)
SHORT = 30  # characters of a number
LETTERS = 40  # of a word, on average, that a sentence may have at most


@dataclass(frozen=True)
class Asked:
    """A sentence, one of the models, and how it may move; with `positions` and a `radius`, a certificate of that."""

    text: str
    model: str
    norm: str = "2"
    words: int = 1
    budget: Budget = "balanced"
    positions: str = ""  # 4, or 2+4 together
    radius: str = ""

    @property
    def eps(self) -> float:
        """The radius as a number."""
        return asked(self.radius)


def read(body: bytes, *, models: Collection[str], longest: int) -> Asked:
    """The question in the body of a request; anything else is an InputError that says what was expected."""
    try:
        content = strict.loads(body)
    except (ValueError, UnicodeDecodeError):
        raise InputError("expected a question as JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"expected a JSON object, found {short(content, 40)}")
    known = {f.name: f.default for f in dataclasses.fields(Asked)}
    for name in content:
        if name not in known:
            raise InputError(f"{short(name, 40)}: expected one of {', '.join(known)}")
    for name in ("text", "model"):
        if not isinstance(content.get(name), str):
            raise InputError(f"{name}: expected a text")
    if content["model"] not in models:
        raise InputError(f"model={short(content['model'], 60)}: expected one of {', '.join(models)}")
    if len(content["text"]) > LETTERS * longest:
        raise InputError(f"the text has {len(content['text']):,} characters: at most {LETTERS * longest:,} here")
    return _checked(Asked(**content))


def _checked(asked: Asked) -> Asked:
    choices = {"norm": NORMS, "words": WORDS, "budget": get_args(Budget)}
    for name, known in choices.items():
        value = getattr(asked, name)
        if isinstance(value, bool) or value not in known:
            raise InputError(f"{name}={short(value, 40)}: expected one of {', '.join(map(str, known))}")
    for name in ("positions", "radius"):
        value = getattr(asked, name)
        if not isinstance(value, str) or len(value) > SHORT or bool(value) != bool(asked.positions):
            raise InputError(f"{name}={short(value, 40)}: a certificate needs both, positions such as 2+4 and a radius")
    if asked.positions and not PLACES.fullmatch(asked.positions):
        raise InputError(f"positions={asked.positions!r}: expected positions such as 4 or 2+4")
    if asked.radius and not 0 < asked.eps < float("inf"):
        raise InputError(f"radius={asked.radius!r}: expected a radius above 0")
    return asked
