"""What a question is answered in, whatever its caller is in the middle of: how many threads, and no mode of PyTorch.

One thread for a small model, which gains little from more and waits for them: a sentence of the bundled model of two
layers took 0.83 s with one thread and 0.67 s with two on two idle cores, 1.2 and 2.2 s on busy ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..models.model import Model

SMALL = 64  # width up to which a second thread gains nothing
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def threads(model: Model, asked: int | None) -> Iterator[None]:
    """As many threads as were asked for; else as PyTorch was told; else one for a small model.

    PyTorch keeps the number by thread of the program, and it is put back, so that nobody else is slowed down. How many
    there are decides nothing about a bound: rounding is accounted for in any order of summation.
    """
    count, before = asked if asked is not None else _usual(model), torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def plain() -> Iterator[None]:
    """Numbers in the precision that they have, and gradients where they are asked for.

    Autocast computes products in less than single precision, which no bound accounts for; in inference mode no attack
    finds its way. Both belong to the thread that is in them, and are as before afterwards.
    """
    with torch.inference_mode(False), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def _usual(model: Model) -> int | None:
    """One for a small model, unless somebody has chosen a number: by a variable, or by `torch.set_num_threads`."""
    chosen = any(name in os.environ for name in VARIABLES) or torch.get_num_threads() < (os.cpu_count() or 1) // 2
    return 1 if not chosen and width(model) <= SMALL else None


def width(model: Model) -> int:
    """How many numbers a position has: those of an embedding, else what the first matrix of the module takes."""
    half = model.embed if isinstance(model.embed, nn.Module) else model.module
    return next((int(p.shape[-1]) for p in half.parameters() if p.dim() > 1), 0)
