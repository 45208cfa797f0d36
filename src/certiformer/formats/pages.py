"""The answer to a question of two files as a page: what was found, and pictures where inputs are some."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..report.pictures import compared, facts, figure, page, shown
from .instance import Instance
from .result import FileAnswer
from .rounding import box

LEADS = {
    "unsat": "Proved: no input within the bounds makes the conditions of the property true.",
    "sat": "Refuted: the input below is within the bounds, and what onnxruntime gives there makes the conditions true.",
    "timeout": "Not decided in the time given.",
    "unknown": "Not decided.",
}


def verify_page(instance: Instance, answer: FileAnswer, files: Mapping[str, str]) -> str:
    """One HTML file about an answer."""
    shape = instance.network.shape
    number = 0 if answer.witness is None else answer.witness.case
    lower, upper = box(instance.query.cases[number])
    middle = (lower + (upper - lower) / 2).reshape(shape)
    figures: list[str] = []
    if len(shape) == 3 and answer.witness is not None:
        figures = compared(middle, torch.as_tensor(answer.witness.x).double().reshape(shape), "the counterexample")
    elif len(shape) == 3:
        figures = [figure(shown(middle, float(middle.min()), float(middle.max())), "the middle of the box")]
    decided = [m for m in answer.margins if m is not None]
    rows = facts(
        **files,
        verdict=answer.verdict,
        reason=answer.reason,
        cases=answer.cases,
        least_proved_margin=f"{min(decided):.6g}" if decided else None,
        outputs=None if answer.witness is None else ", ".join(f"{float(v):.6g}" for v in answer.witness.y),
        method=answer.method,
        arithmetic=answer.arithmetic,
        difference_from_onnxruntime=f"{answer.difference:.1e}",
        widest_input=f"{float((upper - lower).max()):.6g}",
        seconds=f"{answer.seconds:.1f}",
    )
    return page(f"Verified: {answer.verdict}", LEADS[answer.verdict], figures, rows)
