"""Small models of several kinds and questions about them, for tests that compare one way of bounding with another."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from certiformer.core.problem import Problem
from certiformer.models import Model
from certiformer.questions.inputs import Prepared, prepare, problem_of
from conftest import IDS, random_model


class Encoder(nn.Module):
    """A stack of torch's own layers whose output is read at one position."""

    def __init__(self, *, layers: int, norm_first: bool, read: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.stack(x)[:, self.read])
        return out


class Products(nn.Module):
    """Attention of one position to all, written with products that broadcast; the mean of the input beside it."""

    def __init__(self, read: int) -> None:
        super().__init__()
        self.queries, self.keys, self.values = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        query = self.queries(x)[:, self.read : self.read + 1]
        scores = (query * self.keys(x)).sum(dim=-1)
        mixed = torch.softmax(scores, dim=-1)[:, None] @ self.values(x)
        out: Tensor = self.head(mixed[:, 0] + torch.relu(self.keys(x)).mean(dim=1) + self.values(x).mean(dim=1))
        return out


class Affine(nn.Module):
    """Nothing that bends: its bounds are off by rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 64))
        self.head = nn.Linear(64, 3)
        with torch.no_grad():
            for parameter in self.layers.parameters():
                parameter.mul_(30)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(x).mean(dim=1))
        return out


@cache
def prepared(kind: str, dtype: torch.dtype = torch.float64) -> Prepared:
    """A model and a sentence of five words."""
    if kind.startswith("random"):
        return prepare(random_model(layers=int(kind[-1]), scale=0.3, seed=4), IDS, dtype=dtype)
    torch.manual_seed(1)
    module = {
        "post": lambda: Encoder(layers=2, norm_first=False, read=0),
        "pre": lambda: Encoder(layers=2, norm_first=True, read=0),
        "pre, one layer, read inside": lambda: Encoder(layers=1, norm_first=True, read=2),
        "post, one layer, read at the end": lambda: Encoder(layers=1, norm_first=False, read=4),
        "affine": Affine,
        "products": lambda: Products(read=2),
    }[kind]()
    return prepare(Model(module.eval().requires_grad_(False)), torch.randn(5, 8), dtype=dtype)


KINDS = ["random 1", "random 2", "post", "pre", "pre, one layer, read inside", "post, one layer, read at the end"]
SETS = [(2,), (3,), (1, 2)]
PLANS = [(m, r) for m in ("forward", "backward", "backward-forward") for r in ("paper", "tight")]


def asked(kind: str, p: float, method: Any, relaxation: Any, dtype: torch.dtype = torch.float64) -> Problem:
    sentence = prepared(kind, dtype)
    return problem_of([(sentence, s) for s in SETS], p=p, method=method, relaxation=relaxation)
