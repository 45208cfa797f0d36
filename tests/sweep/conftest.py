"""A tiny model and labelled sentences that a sweep takes seconds for."""

from __future__ import annotations

from pathlib import Path

import pytest

from calling import tiny_folder
from sweeping import WORDS, sentences


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS)


@pytest.fixture(scope="session")
def other(tmp_path_factory) -> Path:
    """The same vocabulary in another order: another model."""
    return tiny_folder(tmp_path_factory.mktemp("models") / "other", WORDS[::-1])


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Thirty sentences: the last but one is too long for the model, the last holds nothing that can be seen."""
    path = tmp_path_factory.mktemp("data") / "test.tsv"
    rows = [*sentences(28), (" ".join(["good"] * 40), 1), ("\u200b", 0)]
    path.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for text, label in rows), encoding="utf-8")
    return path
