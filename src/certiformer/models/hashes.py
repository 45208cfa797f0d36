"""What tells two models apart: SHA-256 of weights, of the modules that hold them, and of the vocabulary.

Computed anew at every call, so that a model changed in place has other hashes. The same model read from another folder
or moved to another device has the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import torch
from torch import Tensor, nn


def weights_hash(*halves: object) -> str:
    """Of the names, types, shapes and bytes of all parameters and buffers."""
    found = hashlib.sha256()
    for name, tensor in sorted(_tensors(halves), key=lambda pair: pair[0]):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        found.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return found.hexdigest()


def structure_hash(*halves: object) -> str:
    """Of the classes of all modules, with their plain settings: the same weights in other modules are another model."""
    lines = sorted(line for k, half in enumerate(halves) for line in _described(f"{k}", half))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def vocabulary_hash(vocabulary: tuple[str, ...], special: frozenset[int], tokenizer: object) -> str:
    """Of the tokens in their order, of the special ones, and of the tokenizer's settings where it tells them."""
    settings = getattr(tokenizer, "settings", None)
    told = settings() if callable(settings) else type(tokenizer).__name__
    return hashlib.sha256(json.dumps([vocabulary, sorted(special), told]).encode()).hexdigest()


def _tensors(halves: tuple[object, ...]) -> Iterator[tuple[str, Tensor]]:
    for k, half in enumerate(halves):
        if isinstance(half, nn.Module):
            yield from ((f"{k}.{name}", x) for name, x in half.named_parameters(remove_duplicate=False))
            yield from ((f"{k}.{name}", x) for name, x in half.named_buffers(remove_duplicate=False))


def _described(above: str, half: object) -> Iterator[str]:
    if not isinstance(half, nn.Module):
        yield f"{above} {_named(half)}"
        return
    for name, module in half.named_modules(remove_duplicate=False):
        settings = {key: _setting(value) for key, value in vars(module).items() if key[0] != "_" and key != "training"}
        kept = {key: value for key, value in sorted(settings.items()) if value is not None}
        yield f"{above}.{name} {_named(type(module))} {module.extra_repr()} {json.dumps(kept)}"


def _setting(value: object) -> str | None:
    """A number, or the name of a function; nothing of what may hold a path, a device or an address."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)) and all(isinstance(v, (bool, int, float)) for v in value):
        return repr(tuple(value))
    return _named(value) if callable(value) and not isinstance(value, nn.Module) else None


def _named(value: object) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))
