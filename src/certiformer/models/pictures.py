"""Modules on tensors of a fixed shape: pictures by their patches, which are positions, or inputs moved as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ..errors import InputError, short
from .model import Model


@dataclass(frozen=True)
class Cut:
    """How a picture (channels, height, width) is cut into patches (height, width), row by row."""

    shape: tuple[int, int, int]
    patch: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.shape[1] // self.patch[0], self.shape[2] // self.patch[1]

    def picture(self, patches: Tensor) -> Tensor:
        """[batch, rows * columns, c p q] -> [batch, c, rows p, columns q]"""
        (rows, columns), (p, q), channels = self.grid, self.patch, self.shape[0]
        x = patches.reshape(-1, rows, columns, channels, p, q).permute(0, 3, 1, 4, 2, 5)
        return x.reshape(-1, channels, rows * p, columns * q)

    def patches(self, picture: Tensor) -> Tensor:
        """[c, rows p, columns q], with or without a leading 1 -> [1, rows * columns, c p q]"""
        (rows, columns), (p, q), channels = self.grid, self.patch, self.shape[0]
        expected = (channels, rows * p, columns * q)
        shape = tuple(picture.shape)
        if shape[-3:] == expected and shape[:-3] in ((), (1,)):
            x = picture.reshape(channels, rows, p, columns, q).permute(1, 3, 0, 2, 4)
            return x.reshape(1, rows * columns, -1)
        if shape[-2:] == (rows * columns, channels * p * q) and shape[:-2] in ((), (1,)):
            return picture.reshape(1, *shape[-2:])
        raise InputError(
            f"inputs: expected a picture {list(expected)} or its patches {[rows * columns, channels * p * q]}, "
            f"found a tensor of shape {list(shape)}"
        )


class OnPatches(nn.Module):
    """A module on pictures as one on their patches `[batch, n, d]`."""

    def __init__(self, module: nn.Module, cut: Cut) -> None:
        super().__init__()
        self.module, self.cut = module, cut
        self.title = type(module).__name__

    def forward(self, patches: Tensor) -> Tensor:
        logits: Tensor = self.module(self.cut.picture(patches))
        return logits


def shaped(model: Model, shape: Sequence[int] | None, patch: int | Sequence[int] | None) -> Model:
    """A module that takes inputs of a shape, by patches where their size is given."""
    asked = f"shape={short(shape)}, patch={short(patch)}"
    if shape is None:
        raise InputError(f"{asked}: expected the shape of a picture as well, as (3, 32, 32)")
    size = _sizes(shape, asked)
    if patch is None:
        return replace(model, shape=size)
    pair = _sizes((patch, patch) if isinstance(patch, int) else patch, asked)
    if len(size) != 3 or len(pair) != 2 or size[1] % pair[0] or size[2] % pair[1]:
        raise InputError(f"{asked}: expected (channels, height, width), and patches that divide height and width")
    cut = Cut((size[0], size[1], size[2]), (pair[0], pair[1]))
    return replace(model, module=OnPatches(model.module, cut).eval(), read=cut.patches, shape=size)


def _sizes(given: Sequence[int], asked: str) -> tuple[int, ...]:
    try:
        sizes = tuple(given)
    except TypeError:
        sizes = ()
    if not sizes or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
        raise InputError(f"{asked}: expected whole numbers from 1 on")
    return sizes
