"""What tells two models apart: SHA-256 of weights, of the modules that hold them, and of the vocabulary.

Computed anew at every call, so that a model changed in place has other hashes. The same model read from another folder
or moved to another device has the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn

# of a model or its config: where it was read, by which version, and in which precision, which the weights tell
ELSEWHERE = frozenset({"name_or_path", "_name_or_path", "transformers_version", "dtype", "torch_dtype"})


def weights_hash(*halves: object) -> str:
    """Of the names, types, shapes and bytes of all parameters and buffers."""
    found = hashlib.sha256()
    for name, tensor in sorted(_tensors(halves), key=lambda pair: pair[0]):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(_bytes(tensor))
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


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _described(above: str, half: object) -> Iterator[str]:
    if not isinstance(half, nn.Module):
        yield f"{above} {_named(half)}"
        return
    for name, module in half.named_modules(remove_duplicate=False):
        settings = {key: _setting(value) for key, value in vars(module).items() if _told(key)}
        kept = {key: value for key, value in sorted(settings.items()) if value is not None}
        yield f"{above}.{name} {_named(type(module))} {module.extra_repr()} {json.dumps(kept)}"


def _told(key: str) -> bool:
    return key[0] != "_" and key != "training" and key not in ELSEWHERE


def _setting(value: object, depth: int = 8) -> str | None:
    """A number, a word, a tensor, the name of a function, or what holds such things, as a model's config does.

    Nothing of what may hold an address, no field of `ELSEWHERE`, and nothing deeper than `depth`.
    """
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, Tensor):
        return hashlib.sha256(_bytes(value)).hexdigest()
    if callable(value):
        return None if isinstance(value, nn.Module) else _named(value)
    plain = getattr(value, "to_dict", None)  # a config of Hugging Face
    if callable(plain):
        value = plain()
    elif is_dataclass(value) or isinstance(value, SimpleNamespace):
        value = getattr(value, "__dict__", {})
    if depth and isinstance(value, (tuple, list)):
        return repr([_setting(v, depth - 1) for v in value])
    if depth and isinstance(value, Mapping):
        return repr(sorted((str(k), str(_setting(v, depth - 1))) for k, v in value.items() if k not in ELSEWHERE))
    return None


def _named(value: object) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))
