"""Tokenizers of Hugging Face, with the characters that each token came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelError
from .faithful import first_line
from .model import Encoding, check_characters

NO_CODE: dict[str, Any] = {"trust_remote_code": False}  # nor a question whether to run what a folder holds
MARKS = ("Ġ", "▁")  # how tokenisers write the space before a word
_READ = ("input_ids", "special_tokens_mask", "offset_mapping")  # a tokenizer's other fields go into the model
_NORMAL = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Precompiled", "Strip")
_SPLIT = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Metaspace", "ByteLevel")
_LOCAL = ("Punctuation", "Digits")
_MODELS = ("WordPiece", "WordLevel", "Unigram", "BPE")
_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


class PretrainedTokenizer:
    """A Hugging Face tokenizer, with the characters each token came from."""

    def __init__(self, tokenizer: Any, *, max_length: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length

    def encode(self, text: str) -> Encoding:
        """The tokens of a text. A text longer than the model takes is an error, never cut silently."""
        fast = bool(getattr(self._tokenizer, "is_fast", False))
        coded = self._tokenizer(check_characters(text), return_special_tokens_mask=True, return_offsets_mapping=fast)
        ids = tuple(int(i) for i in coded["input_ids"])
        if self._max_length is not None and len(ids) > self._max_length:
            raise InputError(
                f"the text has {len(ids)} tokens, this model takes at most {self._max_length}: shorten the text"
            )
        special = tuple(bool(s) for s in coded["special_tokens_mask"])
        spans = coded["offset_mapping"] if fast else self._search(text, ids, special)
        return Encoding(
            ids=ids,
            tokens=tuple(self.decode(list(ids))),
            spans=tuple(None if s else _trimmed(text, *span) for span, s in zip(spans, special, strict=True)),
            special=special,
            arguments=tuple((name, _frozen(coded[name])) for name in coded if name not in _READ),
        )

    def decode(self, ids: list[int]) -> list[str]:
        """The token of each id, without the marks that stand for a space."""
        names = self._tokenizer.convert_ids_to_tokens(ids)
        return [_plain(name) for name in names]

    def settings(self) -> str:
        """All that this tokenizer was made of, where it can tell; else its class."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return str(backend.to_str()) if backend is not None else type(self._tokenizer).__name__

    @property
    def context(self) -> tuple[int, int] | None:
        """How many chunks of text, between spaces, before and after a chunk its tokens depend on; None if unknown."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        known = type(self._tokenizer).__module__.startswith("transformers.")
        return context_of(json.loads(backend.to_str())) if known and backend is not None else None

    def _search(self, text: str, ids: Sequence[int], special: Sequence[bool]) -> list[tuple[int, int]]:
        """Spans for a tokenizer that does not tell them: each token where it next occurs."""
        spans, at, lowered = [], 0, text.lower()
        for token, is_special in zip(self.decode(list(ids)), special, strict=True):
            written = token.removeprefix("##").lower()
            found = -1 if is_special else lowered.find(written, at)
            spans.append((at, at) if found < 0 else (found, found + len(written)))
            at = spans[-1][1]
        return spans


def _plain(name: str | None) -> str:
    stripped = (name or "").lstrip("".join(MARKS))
    return stripped or (name or "")


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    return start, end


def context_of(settings: Mapping[str, Any]) -> tuple[int, int] | None:
    """What `context` says, by a tokenizer's own settings.

    Every step must be known to go character by character, or to stay between spaces; one must split at spaces; and the
    model that cuts what is left into tokens must not be random. Tokens that swallow spaces reach into their neighbours.
    """
    steps = list(_steps(settings.get("pre_tokenizer")))
    if not all(_local(step) for step in _steps(settings.get("normalizer"))):
        return None
    if not all(step["type"] in (*_SPLIT, *_LOCAL) for step in steps) or not any(_splits(step) for step in steps):
        return None
    model = settings.get("model") or {}
    if model.get("type") not in _MODELS or model.get("dropout"):
        return None
    added = settings.get("added_tokens") or []
    if any(c.isspace() for token in added for c in token["content"]):
        return None
    return (1, 1) if any(token.get("lstrip") or token.get("rstrip") for token in added) else (0, 0)


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, one by one."""
    if step is None:
        return
    if step["type"] != "Sequence":
        yield step
    for inner in step.get("normalizers", step.get("pretokenizers", ())):
        yield from _steps(inner)


def _local(step: Mapping[str, Any]) -> bool:
    """Whether a normalizer changes a chunk by what is in it alone."""
    if step["type"] != "Replace":
        return step["type"] in _NORMAL
    pattern = step["pattern"]
    if pattern == {"Regex": " {2,}"}:
        return True
    return not any(c.isspace() for c in pattern.get("String", " ") + step["content"])


def _splits(step: Mapping[str, Any]) -> bool:
    """Whether a pre-tokenizer splits at every space."""
    if step["type"] == "Metaspace":
        return bool(step.get("split", True))
    return step["type"] in _SPLIT and bool(step.get("use_regex", True))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


def read_tokenizer(source: str | Path, *, local: bool) -> Any:
    """The tokenizer of a folder or of a name on the hub; None where there is none, and a text will say so.

    Where the files are missing transformers makes up a tokenizer that knows no word: that is none.
    """
    import transformers

    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source, local_files_only=local, **NO_CODE)
    except Exception as error:  # what transformers may raise has no list
        there = [file for file in _FILES if local and (Path(source) / file).is_file()]
        if not there:
            return None
        raise ModelError(
            f"{source}: transformers could not read the tokenizer ({', '.join(there)}): {first_line(error)}"
        ) from error
    known = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    return tokenizer if known else None


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids that are no words: ends, padding, masks."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    ids = {int(i) for i in tokenizer.all_special_ids}
    ends = {getattr(tokenizer, f"{kind}_token_id", None) for kind in ("bos", "eos", "cls", "sep", "pad")}
    return frozenset(ids - ({unknown} - ends))


def vocabulary(tokenizer: Any, size: int) -> tuple[str, ...]:
    """The token of every id."""
    names = {int(i): str(token) for token, i in tokenizer.get_vocab().items()}
    return tuple(_plain(names.get(i, f"<{i}>")) for i in range(size))
