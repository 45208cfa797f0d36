"""A running average of the weights: what is kept of a training instead of the last step's, which is noisier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

FORGOTTEN = 10  # after n updates the decay is at most n / (n + FORGOTTEN): the first weights do not linger


class Average:
    """`a <- d a + (1 - d) w` after every step; with a decay of 0 it is the weights themselves."""

    def __init__(self, parameters: Sequence[Tensor], decay: float) -> None:
        self.parameters, self.decay, self.updates = parameters, decay, 0
        self.mean = [p.detach().clone() for p in parameters] if decay else []

    @torch.no_grad()
    def follow(self) -> None:
        """Take the weights of a step in."""
        self.updates += 1
        new = 1 - min(self.decay, self.updates / (self.updates + FORGOTTEN))
        for mean, p in zip(self.mean, self.parameters, strict=False):  # nothing is kept with a decay of 0
            mean.lerp_(p.detach(), new)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The parameters hold the average."""
        held = [p.detach().clone() for p in self.parameters] if self.mean else []
        self._put(self.mean)
        try:
            yield
        finally:
            self._put(held)

    def restart(self) -> None:
        """Go on from the weights as they are."""
        for mean, p in zip(self.mean, self.parameters, strict=False):
            mean.copy_(p.detach())

    def to_tensors(self) -> dict[str, Tensor]:
        """The average by number, for a checkpoint."""
        return {str(i): mean for i, mean in enumerate(self.mean)}

    def restore(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """What `to_tensors` gave, after so many updates."""
        self.updates = updates
        for i, mean in enumerate(self.mean):
            mean.copy_(tensors[str(i)])

    @torch.no_grad()
    def _put(self, values: Sequence[Tensor]) -> None:
        for p, value in zip(self.parameters, values, strict=False):
            p.copy_(value)
