"""`certiformer image --eps`: does what a model says of a picture hold wherever its pixels move?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.names import option
from ..errors import InputError
from ..norms import norm_name
from ..numbers import down
from ..options import Question, VerifyQuestion
from .terminal import console

if TYPE_CHECKING:
    from torch import Tensor

    from ..api import Certifier
    from ..models.images import Scale
    from ..properties import AnyProperty
    from ..results import VerifyResult
    from ..sets import Ball, Box


LARGEST = 10**9  # that a pixel may move by


@dataclass(frozen=True)
class Answer:
    """What a command found: as JSON, as lines of the result only, as text, as a page; and the exit code."""

    plain: dict[str, Any]
    lines: list[str]
    show: Callable[[], None]
    page: Callable[[], str]
    code: int


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far pixels move, and what is to hold."""

    eps: str | None = option(
        None, "Instead of radii: may pixels move by this much, as 0.01 or 2/255, before --mean and --std? All together."
    )
    clip: bool = option(False, "With --eps and the norm inf: pixels stay between 0 and 1.")
    property: str | None = option(
        None, "With --eps, what is to hold: label (it stays), top-K, never-CLASS, or within=LEAST:MOST of every output."
    )


def asked_property(text: str | None, label: int | None) -> AnyProperty:
    """A property as it is written on the command line."""
    from ..properties import Never, Robust, TopK, Within

    name, _, rest = (text or "label").partition("=" if (text or "").startswith("within") else "-")
    try:
        if name == "within" and rest:
            least, most = (float(part) if part else None for part in rest.split(":"))
            return Within(least, most)
        if name in ("top", "never") and rest.isdecimal():
            return TopK(int(rest), label) if name == "top" else Never(int(rest))
    except ValueError:
        pass
    if name != "label" or rest:
        raise InputError(f"--property {text}: expected label, top-K, never-CLASS or within=LEAST:MOST")
    return Robust(label)


def asked_sets(certifier: Certifier, pixels: Tensor, scale: Scale, how: Moved, question: Question) -> list[Box | Ball]:
    """Where pixels may move: all of them together, or those of the patches that are named, a set for each."""
    from ..sets import Ball, Box

    eps = _eps(how.eps)
    cut: Any = getattr(certifier.model.module, "cut", None)
    if question.positions is not None and cut is None:
        raise InputError(f"--positions: model {certifier.model.name!r} does not cut pictures into patches")
    if question.p != math.inf:
        if how.clip:
            raise InputError(f"--clip and --norm {norm_name(question.p)}: a ball is not cut; give --norm inf")
        where, joint = question.positions, question.joint
        if cut is not None and where is None:
            where, joint = "+".join(map(str, range(math.prod(cut.grid)))), True
        return [Ball(scale.radius(eps), question.p, where, joint=joint)]
    lower, upper = scale.box(pixels, eps, clip=how.clip)
    if question.positions is None:
        return [Box(lower, upper)]
    picture = scale.read(pixels)
    masks = [cut.picture(mask)[0] > 0 for mask in _masks(certifier, picture, question)]
    return [Box(picture.where(~mask, lower), picture.where(~mask, upper)) for mask in masks]


def _eps(given: str | None) -> Fraction:
    try:
        eps = Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        eps = Fraction(-1)
    if not 0 <= eps <= LARGEST:
        raise InputError(f"--eps {given}: expected a number such as 0.01 or 2/255")
    return eps


def _masks(certifier: Certifier, picture: Tensor, question: Question) -> Iterator[Tensor]:
    """For each set of patches `[1, n, numbers]`, 1 where it is."""
    from ..questions.inputs import prepare
    from ..questions.positions import position_sets

    prepared = prepare(certifier.workspace, picture, device=certifier.options.device)
    for where in position_sets(prepared, question):
        mask = prepared.embeddings.new_zeros(prepared.embeddings.shape).cpu()
        mask[:, list(where)] = 1
        yield mask


def moved(
    certifier: Certifier, pixels: Tensor, scale: Scale, how: Moved, verifying: VerifyQuestion, question: Question
) -> Answer:
    """Whether what is asked holds wherever pixels move."""
    from ..report.pictures import verdict_page

    wanted, sets = asked_property(how.property, question.label), asked_sets(certifier, pixels, scale, how, question)
    clipped = ", between 0 and 1" if how.clip else ""
    asked = f"pixels move by {how.eps} in {norm_name(question.p)}{clipped}; to hold: {how.property or 'label'}"
    picture = scale.read(pixels)
    found = certifier.verify(picture, **vars(replace(verifying, within=sets, property=wanted)))
    return Answer(
        plain={"asked": asked, **found.to_dict()},
        lines=[found.status],
        show=partial(_show, found, asked),
        page=partial(verdict_page, found, picture, certifier.model, asked),
        code=0 if found.status == "certified" else 1,
    )


def _show(found: VerifyResult, asked: str) -> None:
    """The verdict in a few lines."""
    output = console()
    output.print(f"{found.status}: {asked}", markup=False)
    for name, status, least in zip(found.sets, found.statuses, found.least, strict=True):
        if len(found.sets) > 1:
            output.print(f"{name}: {status}{f', {down(least)} from bad' if math.isfinite(least) else ''}", markup=False)
    if found.counterexample is not None:
        shown = ", ".join(f"{v:.5g}" for v in found.counterexample.outputs[:10])
        output.print(f"For a picture that was found the model gives [{shown}].", markup=False)
    elif found.status == "certified":
        output.print(f"Proved: {down(min(found.least))} from bad outputs.")
    else:
        output.print(f"Not decided: {found.reason or 'the bounds are too wide'}.", markup=False)
    output.print(f"{found.method}, {found.seconds:.1f} s", style="dim")
