"""Which combinations of a grid `make test` tries; the others are for `make slow`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def spread(*axes: Sequence[Any], times: int = 1) -> list[Any]:
    """All combinations of the values of some axes, for `parametrize`: those on so many diagonals, which meet every
    value of every axis, at once; the others are slow."""
    longest = max(len(axis) for axis in axes)
    chosen = {
        tuple((t + turn * k) % len(axis) for k, axis in enumerate(axes))
        for turn in range(times)
        for t in range(longest)
    }
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, at, strict=True)), marks=() if at in chosen else pytest.mark.slow
        )
        for at in itertools.product(*(range(len(axis)) for axis in axes))
    ]
