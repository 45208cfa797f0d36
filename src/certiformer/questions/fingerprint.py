"""What tells a model from what it was: a model that was changed in place must not be answered for with an old proof."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Hashable, Iterator, Mapping
from types import FunctionType

import numpy as np
import torch
from torch import Tensor, nn

from ..models.model import Model

ODD = (-7046029254386353131, -4658895280553007687)  # factors that mix bits well
DEEPEST = 6  # values within values
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OWN = frozenset(vars(nn.Module())) - frozenset(HOOKS)  # what every module has, weights and submodules among it


def fingerprint(model: Model) -> tuple[Hashable, ...]:
    """Of weights, buffers and modules, of what these hold besides, and of the hooks on them."""
    halves = [model.module, *([model.embed] if isinstance(model.embed, nn.Module) else [])]
    return tuple(part for half in halves for part in _parts(half))


def checksum(values: Tensor) -> int:
    """Of the bytes of a tensor, in their order."""
    flat = values.flatten().contiguous()
    if flat.device.type == "cpu":
        return zlib.crc32(flat.view(torch.uint8).numpy().data)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(flat.element_size(), torch.uint8)
    mixed = flat.view(whole).to(torch.int64) + torch.arange(flat.view(whole).numel(), device=flat.device) * ODD[0]
    for odd in ODD:  # numbers that wrap around, with their upper bits brought down again
        mixed = mixed * odd
        mixed = mixed ^ (mixed >> 31)
    return int(mixed.sum())


def _parts(module: nn.Module, depth: int = 0) -> Iterator[Hashable]:
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        yield _content(tensor, depth)
    for name, part in module.named_modules():
        held = ((key, _content(value, depth)) for key, value in vars(part).items() if key not in _OWN)
        yield name, type(part), *held


def _content(value: object, depth: int) -> Hashable:
    """A value as something that can be compared later, when it may have been changed."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), checksum(value.detach())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return str(value.dtype), value.shape, zlib.crc32(np.ascontiguousarray(value).data)
    if depth == DEEPEST:
        return repr(value)
    inside = functools.partial(_content, depth=depth + 1)
    if isinstance(value, nn.Module):  # one that is held by the way, and is no submodule
        return tuple(_parts(value, depth + 1))
    if isinstance(value, Mapping):
        return type(value), tuple((repr(key), inside(x)) for key, x in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value), tuple(inside(x) for x in value)
    if isinstance(value, functools.partial):
        return inside(value.func), inside(value.args), inside(value.keywords)
    if isinstance(value, FunctionType):
        held = [x for cell in value.__closure__ or () for x in _contents(cell)]
        return value.__code__, inside(value.__defaults__ or ()), inside(value.__kwdefaults__ or {}), inside(held)
    return type(value), repr(value)


def _contents(cell: object) -> list[object]:
    """What a cell of a closure holds; nothing where it is not filled yet."""
    try:
        return [cell.cell_contents]  # type: ignore[attr-defined]
    except ValueError:
        return []
