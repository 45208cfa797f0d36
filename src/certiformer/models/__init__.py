"""Models: bundled ones by name, folders by path."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError
from .folder import read_folder, write_folder
from .model import Encoding, Model, Tokenizer
from .network import Classifier, Config, Embeddings
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

BUNDLED = ("sst-1", "sst-2", "sst-3")
DEFAULT = "sst-2"
_FOLDER = Path(__file__).parent / "bundled"


def load(source: str | os.PathLike[str] | None = None) -> Model:
    """Open a model: a bundled one by name ("sst-1", "sst-2", "sst-3"; None is the default) or a folder by path."""
    if source is None:
        source = DEFAULT
    if isinstance(source, str) and source in BUNDLED:
        folder = _FOLDER / source
        if not folder.is_dir():
            raise ModelError(f"the bundled model {source!r} is not part of this installation: expected it at {folder}")
        return read_folder(folder, name=source)
    if not os.path.exists(source):
        raise ModelError(
            f"no model {os.fspath(source)!r}: neither a folder nor one of the bundled models {', '.join(BUNDLED)}"
        )
    return read_folder(source)


def bundled() -> tuple[Model, ...]:
    """The bundled models that are installed, with their facts."""
    return tuple(load(name) for name in BUNDLED if (_FOLDER / name).is_dir())
