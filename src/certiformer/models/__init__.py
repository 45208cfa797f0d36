"""Models: bundled ones by name, folders by path, Hugging Face models and modules as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import InputError, ModelError, short
from ..named import BUNDLED, DEFAULT, HUB, check_name
from .folder import read_folder, write_folder
from .model import Encoding, Model, Tokenizer
from .network import Classifier, Config, Embeddings
from .pictures import shaped
from .tokenizer import WordTokenizer, split_words

__all__ = [
    "BUNDLED",
    "DEFAULT",
    "Classifier",
    "Config",
    "Embeddings",
    "Encoding",
    "Model",
    "Tokenizer",
    "WordTokenizer",
    "bundled",
    "load",
    "read_folder",
    "split_words",
    "write_folder",
]

_FOLDER = Path(__file__).parent / "bundled"


def load(
    source: Model | str | os.PathLike[str] | nn.Module | Any = None,
    *,
    tokenizer: Any = None,
    embeddings: Callable[[Tensor], Tensor] | None = None,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    token: int | None = None,
    threshold: float = 0.0,
    shape: Sequence[int] | None = None,
    patch: int | Sequence[int] | None = None,
) -> Model:
    """Open a model.

    `source` is the name of a bundled model ("sst-1" and so on; None is the default), a folder, "hf:NAME" for a
    name on the Hugging Face hub, an .onnx file, a Hugging Face model (with its `tokenizer`) or pipeline, or any module
    that maps embeddings `[batch, n, d]` to logits (with `embeddings`, which maps ids to them, and `num_labels` or
    `labels`).

    `shape` is that of one input of a module that takes other tensors, as (3, 32, 32) for pictures `[batch, 3, 32, 32]`;
    with `patch` its positions are the patches of that size, else it has none and moves as a whole.

    `token` chooses the token whose logits are meant where a model has logits for every token. A model with a single
    output is asked whether its value stays above or below `threshold`; `bounds(..., label=0)` bounds the value itself,
    minus the threshold.
    """
    if isinstance(source, Model):
        return source
    from .huggingface import from_module, from_pretrained, is_pipeline, is_pretrained

    if is_pipeline(source):
        own: Any = source
        tokenizer = own.tokenizer if tokenizer is None else tokenizer
        return from_pretrained(own.model, tokenizer=tokenizer, token=token, threshold=threshold)
    if isinstance(source, nn.Module):
        if is_pretrained(source) and embeddings is None:
            return from_pretrained(source, tokenizer=tokenizer, token=token, threshold=threshold)
        known = from_module(source, embeddings=embeddings, num_labels=num_labels, tokenizer=tokenizer, labels=labels)
        return known if shape is None and patch is None else shaped(known, shape, patch)
    if any(given is not None for given in (embeddings, num_labels, labels, shape, patch)):
        raise InputError("embeddings=, num_labels=, labels=, shape= and patch= go with a module; a folder has its own")
    if source is None:
        source = DEFAULT
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"source={short(source)}: expected a name, a folder, a module, or a model or pipeline of Hugging Face"
        )
    return _by_name(source, tokenizer=tokenizer, token=token, threshold=threshold)


def _by_name(source: str | os.PathLike[str], *, tokenizer: Any, token: int | None, threshold: float) -> Model:
    """A bundled model, a folder, or a name on the hub."""
    from .huggingface import needs_transformers, read_pretrained

    check_name(source)
    if os.fspath(source).endswith((".onnx", ".onnx.gz")):
        from .onnx import read_onnx

        return read_onnx(source)
    if isinstance(source, str) and source.startswith(HUB):
        return read_pretrained(
            source.removeprefix(HUB), tokenizer=tokenizer, token=token, threshold=threshold, local=False
        )
    if source not in BUNDLED and os.path.exists(source) and needs_transformers(Path(source)):
        return read_pretrained(Path(source), tokenizer=tokenizer, token=token, threshold=threshold)
    if tokenizer is not None:
        raise InputError("tokenizer= goes with a module or a Hugging Face folder; this model has its own")
    if source in BUNDLED:
        folder = _FOLDER / source
        if not folder.is_dir():
            raise ModelError(f"the bundled model {source!r} is not part of this installation: expected it at {folder}")
        return read_folder(folder, name=str(source))
    return read_folder(source)


def bundled() -> tuple[Model, ...]:
    """The bundled models that are installed, with their facts."""
    return tuple(load(name) for name in BUNDLED if (_FOLDER / name).is_dir())
