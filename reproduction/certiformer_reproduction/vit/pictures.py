"""Pictures of the size of CIFAR-10: scikit-learn's handwritten digits light on dark, in colours, with clutter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 32
MEAN, STD = 0.5, 0.25  # of all channels: what a model reads is (pixel - MEAN) / STD


def pictures(seed: int = 0) -> tuple[Tensor, Tensor]:
    """All 1,797 pictures `[n, 3, 32, 32]` with values from 0 to 1 in steps of 1/255, and their digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    shapes = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    shapes = F.interpolate(shapes, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    generator = torch.Generator().manual_seed(seed)
    count = len(shapes)
    ground = 0.4 * torch.rand(count, 3, 1, 1, generator=generator)
    contrast = 0.25 + 0.35 * torch.rand(count, 3, 1, 1, generator=generator)
    clutter = F.interpolate(torch.rand(count, 3, 4, 4, generator=generator), size=(SIDE, SIDE), mode="bilinear")
    found = ground + shapes * contrast + 0.15 * (clutter - 0.5)
    return (found.clamp(0, 1) * 255).round() / 255, torch.tensor(data.target)


def held_out(count: int) -> Tensor:
    """Which pictures are not trained on: every fifth."""
    return torch.arange(count) % 5 == 0


def normalised(x: Tensor) -> Tensor:
    """Pixels as a model reads them."""
    return (x - MEAN) / STD
