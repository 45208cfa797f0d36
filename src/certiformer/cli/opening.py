"""The model of a command, where it runs, and the positions that were chosen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    import torch

    from ..models import Model
    from ..questions.inputs import Prepared

SMALL = 64  # width up to which a second thread gains nothing


def open_model(name: str | None, device: str, threads: int | None = None) -> tuple[Model, str]:
    """The model and the device to use it on, with as many threads as were asked for or as its size is worth."""
    import torch

    from ..models import load
    from ..training import pick_device

    where = pick_device(device)
    model = load(name)
    if threads is None and "OMP_NUM_THREADS" not in os.environ and model.facts.get("hidden_size", SMALL + 1) <= SMALL:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    return model, str(where)


def precision(name: str) -> torch.dtype:
    """The torch type of a name."""
    import torch

    return torch.float32 if name == "float32" else torch.float64


def chosen_sets(prepared: Prepared, given: Sequence[str] | None) -> list[tuple[int, ...]] | None:
    """`--positions` as sets: "3", "great", "2+3", "great+film", separated by commas."""
    if not given:
        return None
    sets: list[tuple[int, ...]] = []
    for written in (part.strip() for text in given for part in text.split(",")):
        members = [_places(prepared, member.strip(), written) for member in written.split("+")]
        if len(members) == 1:
            sets += [(place,) for place in members[0]]
            continue
        for name, places in zip(written.split("+"), members, strict=True):
            if len(places) > 1:
                at = ", ".join(map(str, places))
                raise InputError(f"--positions {written}: {name!r} stands at {at}: give the number")
        sets.append(tuple(places[0] for places in members))
    return sets


def _places(prepared: Prepared, name: str, written: str) -> list[int]:
    if name.lstrip("-").isdigit():
        return [int(name)]
    found = [i for i in prepared.words if prepared.tokens[i] == name.lower()]
    if not found:
        words = " ".join(f"{i}:{prepared.tokens[i]}" for i in prepared.words)
        raise InputError(f"--positions {written}: no word {name!r} in this sentence; the words are {words}")
    return found
