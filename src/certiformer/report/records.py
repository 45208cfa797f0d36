"""What a run found, as plain values: the JSON the command line writes and the report reads (see docs/json.md)."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import strict
from ..errors import InputError
from ..results import Ranked
from ..text import escapes

SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Substitute:
    """The closest word of the vocabulary that changes the answer in the place of another."""

    word: str
    distance: float
    flipped: str


@dataclass(frozen=True)
class Place:
    """One set of positions. `certified` is None when nothing was computed, `attacked` when nothing was found."""

    positions: tuple[int, ...]
    words: tuple[str, ...]
    certified: float | None = None
    normalized: float | None = None
    attacked: float | None = None
    replacement: str | None = None
    flipped: str | None = None
    substitute: Substitute | None = None
    certificate: str | None = None  # the file of the proof


@dataclass(frozen=True)
class Run:
    """One norm: the radii of every set of positions, by which method, and what they cost."""

    norm: str
    places: tuple[Place, ...]
    method: str | None = None
    relaxation: str | None = None
    calls: float | None = None
    seconds: float | None = None
    attack: str | None = None
    attack_seconds: float | None = None
    error: dict[str, Any] | None = None
    complete: bool = True  # False where time or memory was out before the search had ended
    stopped: str | None = None  # which of them
    unwritten: str | None = None  # why a certificate that was asked for is missing
    substitute_seconds: float | None = None  # of looking for words in the place of others; None: not looked for


@dataclass(frozen=True)
class Verdict:
    """The answer to one question: may these positions move this far?"""

    status: str
    eps: float | None
    norm: str
    positions: tuple[int, ...]
    words: tuple[str, ...]
    margin: float | None = None
    flipped: str | None = None
    radius: float | None = None
    counterexample: tuple[tuple[float, ...], ...] | None = None
    replacements: tuple[str, ...] | None = None
    message: str | None = None
    certificate: str | None = None  # the file of the proof


@dataclass(frozen=True)
class Sentence:
    """One input and what was found about it."""

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    label: str
    label_index: int
    margin: float
    ids: tuple[int, ...] | None = None
    spans: tuple[tuple[int, int] | None, ...] | None = None
    note: str | None = None
    runs: tuple[Run, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    importance: tuple[Ranked, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An input that could not be handled."""

    line: int | None
    text: str
    message: str


@dataclass(frozen=True)
class Document:
    """Everything one command found. `complete` is False when it was stopped half way."""

    command: str
    model: str
    labels: tuple[str, ...]
    settings: dict[str, Any]
    versions: dict[str, str]
    created: str
    seconds: float
    results: tuple[Sentence, ...]
    failures: tuple[Failure, ...] = ()
    complete: bool = True
    hashes: dict[str, str] = field(default_factory=dict)  # SHA-256 of the model's weights, structure and vocabulary
    stopped: str | None = None  # why it is not complete, where that was not Ctrl-C
    schema: int = field(default=SCHEMA)


def to_json(document: Document, *, indent: int | None = 1, ascii: bool = False) -> str:
    """A document as JSON text, of ASCII only where asked for; radii that are infinite are null."""
    content = dataclasses.asdict(document)
    ordered = {"schema": content.pop("schema"), **content}
    return escapes(json.dumps(_finite(ordered), indent=indent, ensure_ascii=ascii, allow_nan=False))


def from_json(text: str, *, where: str = "the JSON") -> Document:
    """Read what `to_json` wrote; anything else is an InputError that says where it differs."""
    try:
        content = strict.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: expected JSON, found something else: {error}") from None
    if not isinstance(content, dict) or "schema" not in content:
        raise InputError(f"{where}: expected the JSON of a certiformer command, found no field 'schema'")
    if content["schema"] != SCHEMA:
        raise InputError(f"{where}: expected schema {SCHEMA}, found {content['schema']!r}: write it with this version")
    document = _read(Document, content, where)
    for i, sentence in enumerate(document.results):
        _check(sentence, f"{where}: results[{i}]")
    return document


def _check(sentence: Sentence, where: str) -> None:
    """What is said of tokens is said of each of them, and positions are those of tokens."""
    count = len(sentence.tokens)
    for name in ("special", "ids", "spans"):
        value = getattr(sentence, name)
        if value is not None and len(value) != count:
            raise InputError(f"{where}: {name}: expected {count} items, as tokens has, found {len(value)}")
    sets = [place.positions for run in sentence.runs for place in run.places]
    sets += [verdict.positions for verdict in sentence.verdicts]
    for position in (p for positions in sets for p in positions):
        if not 0 <= position < count:
            raise InputError(f"{where}: position {position}: expected one of the {count} tokens")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(kind: type[T], content: Any, where: str) -> T:
    """A dataclass from a JSON object, with every field checked against its type."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected an object, found {content!r:.60}")
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        if f.name in content:
            values[f.name] = _value(hints[f.name], content[f.name], f"{where}: {f.name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise InputError(f"{where}: the field {f.name!r} is missing")
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(a for a in arguments if a is not type(None)), value, where)
    if hint is Any:
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, found {value!r:.60}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(value):
            raise InputError(f"{where}: expected {len(kinds)} items, found {len(value)}")
        return tuple(_value(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if dataclasses.is_dataclass(hint):
        return _read(typing.cast(type[Any], hint), value, where)
    if origin is dict or hint is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected an object, found {value!r:.60}")
        return {key: _value(arguments[1], v, f"{where}: {key}") for key, v in value.items()} if arguments else value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"{where}: expected {hint.__name__}, found {value!r:.60}")
    return value
