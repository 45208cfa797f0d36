"""Training state in one safetensors file, so that it is whole or absent after a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import InputError
from ..models.folder import write_bytes

FILE = "checkpoint.safetensors"


@dataclass(frozen=True)
class State:
    """Where training stands, beside its tensors. `settings` identifies what is being trained, on what."""

    settings: str
    segment: int  # how many stretches between evaluations are done
    best_accuracy: float
    best_segment: int
    seconds: float
    history: tuple[tuple[float, float], ...]  # loss and dev accuracy of each segment


def write(
    folder: Path,
    state: State,
    parts: Mapping[str, Mapping[str, Tensor]],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Replace the checkpoint of a folder: the named parts, and the optimizer's moments."""
    tensors = {f"{name}.{k}": v for name, tensors in parts.items() for k, v in tensors.items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in values.items()}
    copied = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    write_bytes(folder / FILE, save(copied, metadata={"state": json.dumps(asdict(state))}))


def read(folder: Path, *, settings: str) -> tuple[State, dict[str, Tensor]] | None:
    """The checkpoint of a folder, None where there is none; another model's is an error."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            raw = json.loads(file.metadata()["state"])
            raw["history"] = tuple((float(a), float(b)) for a, b in raw["history"])
            state = State(**raw)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a training checkpoint ({error}): remove it to train from the start") from None
    if state.settings != settings:
        raise InputError(
            f"{path}: belongs to a training with other settings or data: use another folder, or remove it to train "
            f"from the start"
        )
    return state, tensors


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors below `name.`, with that prefix taken off."""
    return {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put the moments back into an optimizer over the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in part(tensors, "optimizer").items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
