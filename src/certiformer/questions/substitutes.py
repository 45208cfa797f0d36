"""Words in the place of others, as the model reads them.

A substitute is written into the text where the word stood, and the text is read again: whatever the tokenizer does with
capitals, spaces or unknown words, it does here too. What does not change exactly one token is not a substitution of it.
Several together may be read as other tokens than each alone ("mr" and "." as "mr."): combinations are read as such.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ..errors import InputError, short
from ..models.faithful import same_by_ids
from ..models.model import Encoding
from ..options import Substitutions
from .inputs import UNKNOWN_TOKENS, Prepared

Combination = tuple[tuple[str, int], ...]  # at each position a word as it is written, and the id it is read as alone
MOST_READ = 20_000  # combinations of neighbouring words that are read to see whether they are read apart
CHUNK = re.compile(r"[^ ]+")


@dataclass(frozen=True, eq=False)
class Candidates:
    """What may stand where: `choices[position]` begins with the word itself. `skipped` are not one token to the model:
    words that were to be replaced, or to be put in place. Of all positions `most` are replaced at a time, if given."""

    prepared: Prepared
    choices: dict[int, Combination]
    skipped: tuple[str, ...]
    most: int | None = None

    @property
    def count(self) -> int:
        """How many combinations there are."""
        if self.most is None:
            return math.prod(len(c) for c in self.choices.values())
        counts = [1] + [0] * self.most  # with so many words replaced
        for choice in self.choices.values():
            counts = [c + (counts[k - 1] * (len(choice) - 1) if k else 0) for k, c in enumerate(counts)]
        return sum(counts)

    @property
    def ids(self) -> dict[int, list[int]]:
        """Position -> ids of its substitutes."""
        own = self._own
        others = {i: list(dict.fromkeys(t for _, t in c if t != own[i])) for i, c in self.choices.items()}
        return {i: listed for i, listed in others.items() if listed}

    def combinations(self) -> Iterator[Combination]:
        """All of them, the text itself first."""
        if self.most is None:
            yield from itertools.product(*self.choices.values())
            return
        for count in range(min(self.most, len(self.choices)) + 1):
            for where in itertools.combinations(self.choices, count):
                yield from itertools.product(*(c[1:] if i in where else c[:1] for i, c in self.choices.items()))

    def read(self, combination: Combination) -> tuple[int, ...] | None:
        """The ids of the text with these words in it; None where it has another number of tokens, or types of them.

        Without a text (ids were given) words are the tokens of the vocabulary, and each is read alone.
        """
        placed = dict(zip(self.choices, combination, strict=True))
        if self.prepared.text is None:
            return tuple(placed[i][1] if i in placed else own for i, own in enumerate(self._own))
        after = _encoded(self.prepared, self._text(placed))
        return after.ids if after is not None and self._alike(after) else None

    def named(self, combination: Combination) -> str:
        """The words of a combination that are not those of the text."""
        pairs = zip(self.choices.values(), combination, strict=True)
        return " ".join(word for choice, (word, _) in pairs if word != choice[0][0])

    def faithful(self, rows: Tensor, embeddings: Tensor, logits: Tensor) -> bool:
        """Whether the model's own forward pass on ids `[rows, n]` gives the logits that their embeddings gave."""
        return same_by_ids(self.prepared.model, rows, self.prepared.arguments, embeddings, logits)

    def read_apart(self) -> str | None:
        """None where every combination is proved to be read word by word; else why not.

        A tokenizer says how many of the neighbouring chunks of text (between spaces) the tokens of a chunk depend on:
        where all combinations within such windows are read word by word, all combinations are.
        """
        text, tokenizer = self.prepared.text, self.prepared.model.tokenizer
        if text is None:
            return None
        context = getattr(tokenizer, "context", None)
        if context is None:
            return "it is not known how far this tokenizer looks, so that combinations may be read as other tokens"
        if any(c.isspace() for choice in self.choices.values() for word, _ in choice for c in word):
            return "a substitute with a space in it may be read as other tokens beside others"
        chunks = [m.span() for m in CHUNK.finditer(text)]
        held = [[i for i in self.choices if _inside(_span(self.prepared, i), chunk)] for chunk in chunks]
        left, right = context
        windows = {tuple(itertools.chain(*held[max(0, k - left) : k + right + 1])) for k in range(len(chunks))}
        if sum(math.prod(len(self.choices[i]) for i in window) for window in windows) > MOST_READ:
            return "too many combinations of neighbouring words to see whether they are read as other tokens together"
        for window in windows:
            for words in itertools.product(*(self.choices[i] for i in window)):
                if not self._apart(dict(zip(window, words, strict=True))):
                    return f"read as other tokens together: {' '.join(word for word, _ in words)}"
        return None

    def _apart(self, placed: Mapping[int, tuple[str, int]]) -> bool:
        """Whether a combination is read word by word: the ids of each alone, and every token in the chunk it was in."""
        text = self._text(placed)
        after = _encoded(self.prepared, text)
        if after is None or not self._alike(after):
            return False
        expected = tuple(placed[i][1] if i in placed else own for i, own in enumerate(self._own))
        before = _chunks(self._text({}), self._before)
        return after.ids == expected and before is not None and _chunks(text, after) == before

    def _alike(self, after: Encoding) -> bool:
        """Whether a text has as many tokens as this one, of the same kinds."""
        before = self._before
        return len(after.ids) == len(before.ids) and (after.special, after.arguments) == (
            before.special,
            before.arguments,
        )

    @cached_property
    def _before(self) -> Encoding:
        encoding = _encoded(self.prepared, self._text({}))
        assert encoding is not None
        return encoding

    @property
    def _own(self) -> tuple[int, ...]:
        assert self.prepared.ids is not None
        return self.prepared.ids

    def _text(self, placed: Mapping[int, tuple[str, int]]) -> str:
        text = self.prepared.text
        assert text is not None
        for i in sorted(placed, reverse=True):
            span = _span(self.prepared, i)
            assert span is not None
            text = text[: span[0]] + placed[i][0] + text[span[1] :]
        return text


def candidates(prepared: Prepared, substitutions: Substitutions, most: int | None = None) -> Candidates:
    """The substitutes of the words of an input, each read in its place; that there is none is an error."""
    found = substitutes_of(prepared, substitutions, most)
    if not found.ids:
        raise InputError(
            f"substitutions={short(substitutions)}: no word of this text has a substitute in the model's vocabulary"
        )
    return found


def substitutes_of(prepared: Prepared, substitutions: Substitutions, most: int | None) -> Candidates:
    """The same, where there may be none. Keys are words, or positions of tokens."""
    if prepared.ids is None or not prepared.model.vocabulary:
        raise InputError("substitutions: expected a text or token ids and a model with a vocabulary, not embeddings")
    listed: dict[str | int, Sequence[str]] = dict(substitutions.items())
    for key, words in listed.items():
        if isinstance(words, str):
            raise InputError(f"substitutions[{key!r}]={words!r}: expected a list of words")
        if isinstance(key, int) and key not in prepared.movable:
            raise InputError(f"substitutions[{key}]: expected a position of a word: {short(prepared.movable)}")
    keys: dict[str, list[str]] = {}
    for key in listed:
        if isinstance(key, str):
            keys.setdefault(key.casefold(), []).append(key)
    choices: dict[int, Combination] = {}
    skipped = dict.fromkeys(_in_pieces(prepared, keys))
    for position in prepared.movable:
        written = _written(prepared, position)
        read: dict[str, int] = {written: prepared.ids[position]}
        named = [key for key in keys.get(written.casefold(), ()) if _names(prepared, position, key)]
        for word in itertools.chain(listed.get(position, ()), *(listed[key] for key in named)):
            token = _read(prepared, position, word)
            if token is None:
                skipped[word] = None
            else:
                read[word] = token
        if len(read) > 1:
            choices[position] = tuple(read.items())
    return Candidates(prepared, choices, tuple(skipped), most)


def _inside(span: tuple[int, int] | None, chunk: tuple[int, int]) -> bool:
    return span is not None and chunk[0] <= span[0] < chunk[1]


def _chunks(text: str, encoding: Encoding) -> list[int | None] | None:
    """The number of the chunk that each token stands in; None where one stands in more than one."""
    numbers: list[int | None] = []
    chunks = [m.span() for m in CHUNK.finditer(text)]
    for span in encoding.spans:
        number = next((k for k, chunk in enumerate(chunks) if _inside(span, chunk)), None)
        if number is not None and span is not None and span[1] > chunks[number][1]:
            return None
        numbers.append(number)
    return numbers


def _span(prepared: Prepared, position: int) -> tuple[int, int] | None:
    """Where a word stands in the text, without spaces around it."""
    span = None if prepared.text is None or prepared.spans is None else prepared.spans[position]
    if span is None or prepared.text is None:
        return None
    piece = prepared.text[span[0] : span[1]]
    return span[0] + len(piece) - len(piece.lstrip()), span[0] + len(piece.rstrip())


def _written(prepared: Prepared, position: int) -> str:
    span = _span(prepared, position)
    return prepared.tokens[position] if span is None or prepared.text is None else prepared.text[span[0] : span[1]]


def _names(prepared: Prepared, position: int, key: str) -> bool:
    """Whether a key means the word at a position: written the same, or, but for capitals, read the same."""
    if _written(prepared, position) == key:
        return True
    return _span(prepared, position) is not None and _with(prepared, position, key) == prepared.ids


def _read(prepared: Prepared, position: int, word: str) -> int | None:
    """The id that stands at a position when a word is put there; None where more changes than that one token."""
    model, own = prepared.model, prepared.ids
    assert own is not None
    if _span(prepared, position) is None:
        token = model.vocabulary.index(word) if word in model.vocabulary else None
        return None if token in model.special else token
    ids = _with(prepared, position, word)
    if len(ids) != len(own) or any(a != b for i, (a, b) in enumerate(zip(ids, own, strict=True)) if i != position):
        return None
    special = ids[position] in model.special and model.vocabulary[ids[position]] not in UNKNOWN_TOKENS
    return None if special else ids[position]


def _with(prepared: Prepared, position: int, word: str) -> tuple[int, ...]:
    """The ids of the text with a word in the place of another; none where it cannot be read."""
    span, text = _span(prepared, position), prepared.text
    assert span is not None
    assert text is not None
    encoding = _encoded(prepared, text[: span[0]] + word + text[span[1] :])
    return () if encoding is None else encoding.ids


def _encoded(prepared: Prepared, text: str) -> Encoding | None:
    """A text as the model reads it; None where it cannot, such as one longer than it takes."""
    tokenizer = prepared.model.tokenizer
    assert tokenizer is not None
    try:
        return tokenizer.encode(text)
    except InputError:
        return None


def _in_pieces(prepared: Prepared, keys: Mapping[str, Sequence[str]]) -> list[str]:
    """Keys that stand in the text as more than one token: these cannot be replaced one for one."""
    spans = [(i, s) for i in prepared.movable if (s := _span(prepared, i)) is not None]
    keys_met: list[str] = []
    for k, (_, (start, end)) in enumerate(spans):
        for _, (first, last) in spans[k + 1 :]:
            if first != end:
                break
            end = last
            assert prepared.text is not None
            keys_met += keys.get(prepared.text[start:end].casefold(), ())
    return keys_met
