"""Where a model is, and where it goes."""

from __future__ import annotations

import itertools

import torch

from ..errors import InputError
from .model import Model


def pick_device(device: torch.device | str = "auto") -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError:
        raise InputError(f"device={device!r}: expected auto, cpu, cuda, cuda:0 and so on") from None
    if picked.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={str(device)!r}: this machine has no CUDA device")
    return picked


def place(model: Model) -> torch.device:
    """The device of a model's weights."""
    tensors = itertools.chain(model.module.parameters(), model.module.buffers())
    return next((t.device for t in tensors), torch.device("cpu"))
