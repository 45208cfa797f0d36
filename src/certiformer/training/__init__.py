"""Training the paper's classifier from scratch."""

from __future__ import annotations

from ..models.device import pick_device
from ..recipe import Recipe
from .batches import accuracy, build_vocabulary, encode
from .movement import movement
from .train import Progress, Trained, evaluate, train

__all__ = [
    "Progress",
    "Recipe",
    "Trained",
    "accuracy",
    "build_vocabulary",
    "encode",
    "evaluate",
    "movement",
    "pick_device",
    "train",
]
