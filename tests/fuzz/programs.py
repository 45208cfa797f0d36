"""Random models: blocks one after the other, then a way of reading the result, then a linear head."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .blocks import BLOCKS

READERS = ("first", "mean", "sum", "largest", "flat", "log")


@dataclass(frozen=True)
class Step:
    """A block, what its constants are drawn from, how large they are, and whether its input is added to its output."""

    name: str
    seed: int = 0
    size: float = 1.0
    residual: bool = False


class Given:
    """Constants and choices in the order in which they were drawn."""

    def __init__(self, tensors: Iterator[Tensor], picks: Iterator[int]) -> None:
        self.tensors, self.picks = tensors, picks

    def numbers(self, *shape: int) -> Tensor:
        return next(self.tensors)

    def matrix(self, *shape: int) -> Tensor:
        return next(self.tensors)

    def pick(self, count: int) -> int:
        return next(self.picks)


class Drawn(Given):
    """The first time: everything is drawn, and noted."""

    def __init__(self, seed: int, size: float) -> None:
        self.generator, self.size = torch.Generator().manual_seed(seed), size
        self.kept: list[Tensor] = []
        self.picked: list[int] = []

    def numbers(self, *shape: int) -> Tensor:
        self.kept.append(torch.randn(shape, generator=self.generator, dtype=torch.float64) * self.size)
        return self.kept[-1]

    def matrix(self, *shape: int) -> Tensor:
        self.numbers(*shape).div_(math.sqrt(shape[-1]))
        return self.kept[-1]

    def pick(self, count: int) -> int:
        self.picked.append(int(torch.randint(count, (), generator=self.generator)))
        return self.picked[-1]


class Block(nn.Module):
    """One block with its constants."""

    def __init__(self, step: Step, x: Tensor) -> None:
        super().__init__()
        drawn = Drawn(step.seed, step.size)
        self.name = step.name
        shape = BLOCKS[step.name](x, drawn).shape
        self.residual = step.residual and shape == x.shape
        self.picked = tuple(drawn.picked)
        self.count = len(drawn.kept)
        for k, tensor in enumerate(drawn.kept):
            self.register_buffer(f"constant_{k}", tensor)

    def forward(self, x: Tensor) -> Tensor:
        tensors = (getattr(self, f"constant_{k}") for k in range(self.count))
        y = BLOCKS[self.name](x, Given(tensors, iter(self.picked)))
        return x + y if self.residual else y


class Program(nn.Module):
    """`[1, n, d] -> [1, classes]`."""

    def __init__(self, steps: tuple[Step, ...], x: Tensor, *, reader: str, classes: int, head: float) -> None:
        super().__init__()
        self.reader = reader
        self.blocks = nn.ModuleList()
        with torch.no_grad():
            for step in steps:
                made = Block(step, x)
                self.blocks.append(made)
                x = made(x)
            width = self.read(x).shape[-1]
        drawn = Drawn(len(steps), head)
        self.register_buffer("weight", drawn.matrix(classes, width))
        self.register_buffer("bias", drawn.numbers(classes))

    def read(self, x: Tensor) -> Tensor:
        if self.reader == "flat":
            return x.flatten(1)
        if self.reader == "largest":
            return x.amax(dim=1)
        if self.reader == "log":
            return torch.logsumexp(x, dim=1)
        return x[:, 0] if self.reader == "first" else x.mean(dim=1) if self.reader == "mean" else x.sum(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        for made in self.blocks:
            x = made(x)
        return nn.functional.linear(self.read(x), self.weight, self.bias)
