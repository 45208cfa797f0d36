"""The errors a caller can meet. Each message restates the call and says what to do."""

from __future__ import annotations


class CertiformerError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(CertiformerError, ValueError):
    """The call itself is wrong: a bad position, radius, norm, text, file or option."""


class ModelError(CertiformerError):
    """A model folder or module that cannot be opened as asked."""


class UnsupportedError(CertiformerError):
    """The model uses operations that cannot be bounded; the message lists all of them."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: that of a GPU, or of this machine, which torch says with an error of its own."""
    said = isinstance(error, RuntimeError) and "allocate memory" in str(error)
    return said or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def short(value: object, limit: int = 80) -> str:
    """A value as it is restated in a message: written out in one line, and cut where it is long."""
    written = " ".join(repr(value).split())
    return written if len(written) <= limit else written[: limit - 3] + "..."


def title(module: object) -> str:
    """How a module is called in a message: by its class, or by that of the model it wraps."""
    return str(getattr(module, "title", type(module).__name__))
