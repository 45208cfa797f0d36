"""A little adversarial training: a few gradient steps inside a box around each picture, then one of Adam."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .network import Shape, VisionTransformer
from .pictures import held_out, normalised, pictures


def perturbed(model: nn.Module, x: Tensor, y: Tensor, *, eps: float, steps: int) -> Tensor:
    """Pictures changed by at most eps a pixel, so that the loss grows."""
    steps = steps if eps else 0
    moved = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(model(normalised(moved)), y), moved)
        moved = (moved + 2 * eps / steps * slope.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    return moved.detach()


def train(shape: Shape, *, eps: float, epochs: int, seed: int = 0, steps: int = 3) -> VisionTransformer:
    """A model, in evaluation mode."""
    torch.manual_seed(seed)
    x, y = pictures()
    held = held_out(len(x))
    seen, answers = x[~held], y[~held]
    model = VisionTransformer(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.5)
    batches = len(seen) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=epochs * batches)
    for epoch in range(epochs):
        radius = eps * min(max(2.5 * (epoch + 1) / epochs - 0.75, 0.0), 1.0)  # plain first, then wider and wider
        for chosen in torch.randperm(len(seen))[: batches * 64].view(-1, 64):
            model.eval()
            moved = perturbed(model, seen[chosen], answers[chosen], eps=radius, steps=steps)
            model.train()
            loss = F.cross_entropy(model(normalised(moved)), answers[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return model.eval()


def accuracy(model: nn.Module) -> float:
    """On the pictures held out."""
    x, y = pictures()
    held = held_out(len(x))
    with torch.no_grad():
        right = model(normalised(x[held])).argmax(dim=1) == y[held]
    return float(right.double().mean())
