"""The command line called as a user does, and a model small enough for it to answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from certiformer.cli import main
from certiformer.models import Config, write_folder
from certiformer.models.network import build
from certiformer.models.tokenizer import SPECIAL_TOKENS

LARGER = 15  # than they begin: weights with which the classes are told apart


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code, and what was printed to stdout and to stderr."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def tiny_folder(path: Path, words: Sequence[str]) -> Path:
    """A folder with a model of one layer that knows these words."""
    torch.manual_seed(2)
    vocabulary = (*SPECIAL_TOKENS, *words)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "max_position_embeddings": 12}
    config = Config(1, len(vocabulary), **sizes)
    embed, classifier = build(config)
    for parameter in (*embed.parameters(), *classifier.parameters()):
        parameter.data *= LARGER if parameter.dim() > 1 else 1
    return write_folder(path, config=config, embed=embed, classifier=classifier, vocabulary=vocabulary)
