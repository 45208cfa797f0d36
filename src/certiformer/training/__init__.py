"""Training so that a model can be certified: the paper's classifier from scratch, Hugging Face classifiers further."""

from __future__ import annotations

from ..models.device import pick_device
from ..recipe import FineTuning, Recipe
from .batches import accuracy, build_vocabulary, encode
from .bound import CertifiedMargin
from .finetune import FineTuned, finetune
from .front import Front, Point, front
from .movement import movement
from .run import Progress
from .train import Trained, evaluate, train

__all__ = [
    "CertifiedMargin",
    "FineTuned",
    "FineTuning",
    "Front",
    "Point",
    "Progress",
    "Recipe",
    "Trained",
    "accuracy",
    "build_vocabulary",
    "encode",
    "evaluate",
    "finetune",
    "front",
    "movement",
    "pick_device",
    "train",
]
