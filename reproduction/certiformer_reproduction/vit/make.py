"""Make the benchmark: train the models, choose pictures, write ONNX and VNN-LIB files and instances.csv.

certiformer reproduce vit make FOLDER

An instance is a picture held out that the model reads rightly, and a box: every pixel may move by so many 255ths,
within 0 and 1. Pictures that a short attack changes are left out, so that what remains is to be proved or found.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from .network import Shape
from .pictures import MEAN, STD, held_out, normalised, pictures
from .train import accuracy, perturbed, train

SHAPES = {
    "pgd_2_3_16": Shape(layers=2, heads=3, patch=16, pool="cls"),
    "pgd_3_3_8": Shape(layers=3, heads=3, patch=8, pool="mean"),
}
STEPS = {"pgd_2_3_16": (2, 2, 1, 2, 12), "pgd_3_3_8": (1, 1, 1, 1, 12)}  # 255ths by which pixels may move, in turn
EASY = 5  # steps of the attack that leaves pictures out


@dataclass(frozen=True)
class Making:
    """What is made."""

    out: Path
    count: int = 50  # instances of each model
    seconds: int = 100
    trained_for: float = 8 / 255
    epochs: int = 40
    seed: int = 0


def make(making: Making, say: Callable[[str], None]) -> None:
    """Write the whole folder; a model that is there already is not trained again."""
    for folder in ("onnx", "vnnlib"):
        (making.out / folder).mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, str, int]] = []
    about = {}
    for name, shape in SHAPES.items():
        model = trained(making, name)
        right = accuracy(model)
        say(f"{name}: {right:.1%} of the pictures held out are read rightly")
        chosen = choose(model, making, STEPS[name])
        about[name] = {"accuracy": right, "instances": len(chosen)}
        for index, step in chosen:
            file = f"vnnlib/{name}_{index}_{step}.vnnlib"
            (making.out / file).write_text(property_of(index, step, shape.classes), encoding="ascii")
            rows.append((f"onnx/{name}.onnx", file, making.seconds))
        say(f"{name}: {len(chosen)} instances")
    with (making.out / "instances.csv").open("w", newline="", encoding="ascii") as listed:
        csv.writer(listed).writerows(rows)
    (making.out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="ascii")


def trained(making: Making, name: str) -> nn.Module:
    """A model as its file says it, in float32."""
    from certiformer.formats.export import write_model
    from certiformer.models.onnx import Network, read_file

    path, shape = making.out / "onnx" / f"{name}.onnx", SHAPES[name]
    if not path.exists():
        model = train(shape, eps=making.trained_for, epochs=making.epochs, seed=making.seed)
        write_model(model, torch.zeros(1, shape.channels, shape.side, shape.side), path)
    return Network(read_file(path)).float().eval()


def choose(model: nn.Module, making: Making, steps: Sequence[int]) -> list[tuple[int, int]]:
    """Pictures held out, by number, with a step each: read rightly, and not changed by a short attack."""
    torch.manual_seed(making.seed)
    x, y = pictures()
    numbers = held_out(len(x)).nonzero()[:, 0]
    numbers = numbers[torch.randperm(len(numbers))]
    found: list[tuple[int, int]] = []
    for k in numbers.tolist():
        if len(found) == making.count:
            break
        step = steps[len(found) % len(steps)]
        moved = perturbed(model, x[k : k + 1], y[k : k + 1], eps=step / 255, steps=EASY)
        with torch.no_grad():
            says = model(normalised(torch.cat([x[k : k + 1], moved]))).argmax(dim=1)
        if bool((says == y[k]).all()):
            found.append((k, step))
    return found


def property_of(index: int, step: int, classes: int) -> str:
    """VNN-LIB 1.0: the box around a picture, and every answer but the right one."""
    x, y = pictures()
    picture, label = (x[index].double() * 255).round().flatten(), int(y[index])
    lower, upper = ((picture + sign * step).clamp(0, 255) for sign in (-1, 1))
    low, high = (_written((bound / 255 - MEAN) / STD) for bound in (lower, upper))
    lines = [f"; picture {index}, a {label}, moved by up to {step}/255"]
    lines += [f"(declare-const X_{k} Real)" for k in range(len(low))]
    lines += [f"(declare-const Y_{k} Real)" for k in range(classes)]
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        lines += [f"(assert (<= X_{k} {b}))", f"(assert (>= X_{k} {a}))"]
    others = " ".join(f"(and (>= Y_{k} Y_{label}))" for k in range(classes) if k != label)
    return "\n".join([*lines, f"(assert (or {others}))"]) + "\n"


def _written(values: Tensor) -> list[str]:
    return [f"{v:.9f}" for v in values.tolist()]
