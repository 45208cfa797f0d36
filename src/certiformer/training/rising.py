"""The weight of the penalty for certificates over a training: it rises late, and backs off where accuracy is lost."""

from __future__ import annotations

from collections.abc import Sequence

from ..recipe import Recipe

BEGIN, FULL = 0.25, 0.75  # shares of the steps: before them it is 0, after them whole


def halvings(recipe: Recipe, history: Sequence[tuple[float, float]], evaluations: int) -> int:
    """How often the weight was halved: for every two evaluations in a row, since the last time, that lie too far below
    the best one without the penalty.

    `history` has the loss and the dev accuracy of the evaluations so far, of `evaluations` in all.
    """
    before = [dev for k, (_, dev) in enumerate(history) if k == 0 or (k + 1) / evaluations <= BEGIN]
    count = low = 0
    for _, dev in history[len(before) :]:
        low = low + 1 if dev < max(before) - recipe.allowed_loss else 0
        if low == 2:
            count, low = count + 1, 0
    return count


def weight(recipe: Recipe, share: float, halved: int) -> float:
    """The weight of the penalty when a share of the steps is done."""
    return float(recipe.certify * rise(share, halved))


def rise(share: float, halved: int) -> float:
    """What part of its weight a loss for certificates has when a share of the steps is done."""
    return float(min(1.0, max(0.0, (share - BEGIN) / (FULL - BEGIN))) * 0.5**halved)
