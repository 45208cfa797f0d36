"""What a model says: the class, how sure it is of it, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ..errors import InputError, short, title
from .faithful import run
from .model import Model
from .reading import Inputs, as_tensor, checked, label_name, logits_at, margins, read
from .wrapped import FromEmbeddings


@dataclass(frozen=True)
class Prediction:
    """A model's answer. `margin` is the lead of its logit over the next; `probabilities` are the softmax of all."""

    label: int
    name: str
    probabilities: tuple[float, ...]
    margin: float
    logits: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.probabilities[self.label]:.1%}, margin {self.margin:.4g})"


def predict(model: Model, inputs: Inputs | Sequence[Inputs]) -> Prediction | tuple[Prediction, ...]:
    """The prediction for one input, or for each of several, by the model's own forward pass in float64."""
    copied = model.to(dtype=torch.float64)
    for half in (copied.module, copied.embed):
        if isinstance(half, nn.Module):
            half.eval()
    if isinstance(inputs, (list, tuple)) and inputs and not isinstance(inputs[0], int):
        return tuple(_one(copied, one) for one in inputs)
    if isinstance(inputs, (list, tuple)) and not inputs:
        raise InputError(f"inputs={short(inputs)}: expected a text, ids or embeddings, or a list of them")
    return _one(copied, inputs)  # type: ignore[arg-type]


def _one(model: Model, inputs: Inputs) -> Prediction:
    inputs = as_tensor(model, inputs)
    _, arguments, embeddings = read(model, inputs, dtype=torch.float64)
    module = model.module
    if isinstance(module, FromEmbeddings) and arguments:
        asked = f"{title(module)} could not be run on {' and '.join(arguments)}"
        logits = checked(model, run(partial(module.own, module.accepted(arguments)), asked), "this input")
    else:
        given = isinstance(inputs, Tensor) and inputs.is_floating_point()
        logits = logits_at(model, embeddings, given=given)
    label = int(logits.argmax(dim=1))
    return Prediction(
        label=label,
        name=label_name(model, label),
        probabilities=tuple(logits.softmax(dim=1)[0].tolist()),
        margin=float(margins(logits, label)[0]),
        logits=tuple(logits[0].tolist()),
    )
