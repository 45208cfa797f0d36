"""Words in the place of others, as the model reads them.

A substitute is written into the text where the word stood, and the text is read again: whatever the tokenizer does with
capitals, spaces or unknown words, it does here too. What does not change exactly one token is not a substitution of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InputError, short
from ..options import Substitutions
from .inputs import UNKNOWN_TOKENS, Prepared


def candidates(prepared: Prepared, substitutions: Substitutions) -> tuple[dict[int, list[int]], tuple[str, ...]]:
    """Position -> ids of its substitutes; and the words that were to be replaced or put in place but are not one token.

    Without a text (ids were given) words are the tokens of the vocabulary.
    """
    if prepared.ids is None or not prepared.model.vocabulary:
        raise InputError("substitutions: expected a text or token ids and a model with a vocabulary, not embeddings")
    for word, listed in substitutions.items():
        if isinstance(listed, str):
            raise InputError(f"substitutions[{word!r}]={listed!r}: expected a list of words")
    keys: dict[str, list[str]] = {}
    for word in substitutions:
        keys.setdefault(word.casefold(), []).append(word)
    found: dict[int, list[int]] = {}
    skipped = dict.fromkeys(_in_pieces(prepared, keys))
    for position in prepared.words:
        ids: dict[int, None] = {}
        for key in keys.get(_written(prepared, position).casefold(), ()):
            if not _names(prepared, position, key):
                continue
            for word in substitutions[key]:
                token = _read(prepared, position, word)
                if token is None:
                    skipped[word] = None
                elif token != prepared.ids[position]:
                    ids[token] = None
        if ids:
            found[position] = list(ids)
    if not found:
        raise InputError(
            f"substitutions={short(substitutions)}: no word of this text has a substitute in the model's vocabulary"
        )
    return found, tuple(skipped)


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
    span, text, tokenizer = _span(prepared, position), prepared.text, prepared.model.tokenizer
    assert span is not None
    assert text is not None
    assert tokenizer is not None
    try:
        return tokenizer.encode(text[: span[0]] + word + text[span[1] :]).ids
    except InputError:  # such as longer than the model takes
        return ()


def _in_pieces(prepared: Prepared, keys: Mapping[str, Sequence[str]]) -> list[str]:
    """Keys that stand in the text as more than one token: these cannot be replaced one for one."""
    spans = [(i, s) for i in prepared.words if (s := _span(prepared, i)) is not None]
    found: list[str] = []
    for k, (_, (start, end)) in enumerate(spans):
        for _, (first, last) in spans[k + 1 :]:
            if first != end:
                break
            end = last
            assert prepared.text is not None
            found += keys.get(prepared.text[start:end].casefold(), ())
    return found
