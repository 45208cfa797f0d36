"""A vision Transformer as the benchmark has it: a CLS token, BatchNorm in the place of LayerNorm, ReLU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    layers: int
    heads: int
    patch: int
    width: int = 48
    side: int = 32
    channels: int = 3
    classes: int = 10
    pool: Literal["cls", "mean"] = "mean"


class Norm(nn.Module):
    """BatchNorm of tokens `[batch, n, width]`, over all tokens together."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return found


class Block(nn.Module):
    """Attention and a layer with ReLU, each after a norm and added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, width = shape.heads, shape.width
        self.before, self.between = Norm(width), Norm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, n, width = x.shape
        parts = self.mix(self.before(x)).reshape(batch, n, 3, self.heads, width // self.heads)
        query, key, value = (parts[:, :, k].transpose(1, 2) for k in range(3))  # [batch, heads, n, width / heads]
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(batch, n, width)
        x = x + self.out(mixed)
        found: Tensor = x + self.down(self.up(self.between(x)).relu())
        return found


class VisionTransformer(nn.Module):
    """Pictures `[batch, channels, side, side]` -> logits `[batch, classes]`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.cut = nn.Conv2d(shape.channels, shape.width, shape.patch, stride=shape.patch)
        count = (shape.side // shape.patch) ** 2 + 1
        self.first = nn.Parameter(torch.randn(1, 1, shape.width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, count, shape.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last = Norm(shape.width)
        self.head = nn.Linear(shape.width, shape.classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.cut(x).flatten(2).transpose(1, 2)  # [batch, patches, width]
        tokens = torch.cat([self.first.expand(tokens.shape[0], -1, -1), tokens], dim=1) + self.places
        tokens = self.last(self.blocks(tokens))
        found: Tensor = self.head(tokens[:, 0] if self.shape.pool == "cls" else tokens.mean(dim=1))
        return found
