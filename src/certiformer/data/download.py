"""The public sets through Hugging Face `datasets`, kept in the user's cache folder by that library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError
from .readers import Example

# part -> (repository, split, text column); SST-2's own test part has no labels, so it is taken from a labelled copy
_PARTS = {
    "sst": {
        "train": ("stanfordnlp/sst2", "train", "sentence"),
        "dev": ("stanfordnlp/sst2", "validation", "sentence"),
        "test": ("SetFit/sst2", "test", "text"),
    },
    "yelp": {
        "train": ("fancyzhang/yelp_polarity", "train", "text"),
        "test": ("fancyzhang/yelp_polarity", "test", "text"),
    },
}


class NotInstalledError(Exception):
    """Hugging Face `datasets` is not installed."""


def fetch(name: str) -> dict[str, tuple[Example, ...]]:
    """The parts of `sst` or `yelp`; a part the public set lacks is empty."""
    try:
        import datasets
    except ImportError:
        raise NotInstalledError from None
    parts: dict[str, tuple[Example, ...]] = {"train": (), "dev": (), "test": ()}
    for part, (repository, split, column) in _PARTS[name].items():
        try:
            rows = datasets.load_dataset(repository, split=split, cache_dir=_cache())
        except Exception as error:  # whatever the network or the library says, in one line
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"data {name!r}: could not fetch {repository} ({split}) from Hugging Face: {reason}"
            ) from error
        parts[part] = tuple(_examples(rows, column, where=f"{repository} ({split})"))
    return parts


def _examples(rows: Iterable[Mapping[str, Any]], column: str, *, where: str) -> Iterable[Example]:
    from ..models.tokenizer import split_words

    for number, row in enumerate(rows, 1):
        words = tuple(word.text for word in split_words(row[column]))
        if not words or int(row["label"]) < 0:
            raise InputError(f"{where}, row {number}: expected a label and a sentence, found {row!r:.60}")
        yield Example(int(row["label"]), words, text=row[column])


def _cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "certiformer", "data")
