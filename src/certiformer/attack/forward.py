"""A module on many inputs at once, and on one as anyone would run it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import CertiformerError


def logits_of(module: nn.Module, x: Tensor) -> Tensor:
    """Logits `[rows, classes]` of inputs `[rows, n, d]`; one row after another where a module takes no batches."""
    if len(x) == 1:
        return alone(module, x)
    try:
        found = module(x)
    except CertiformerError:
        raise
    except Exception:  # what a module may say of a batch has no list
        found = None
    if isinstance(found, Tensor) and found.dim() == 2 and len(found) == len(x):
        return found
    return torch.cat([alone(module, x[i : i + 1]) for i in range(len(x))])


def alone(module: nn.Module, x: Tensor) -> Tensor:
    """Logits `[1, classes]` of one input `[1, n, d]`."""
    logits: Tensor = module(x)
    return logits
