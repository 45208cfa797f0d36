"""Certificates of what was proved: over a ball, in one or several pieces, over a hull of substitutes, or at points."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._version import __version__
from ..core.deadline import NEVER
from ..core.graph.graph import Graph
from ..core.problem import Problem
from ..core.recording import Recording
from ..core.sets import Ball, Choices, Piece
from ..core.split import Split
from ..errors import UnsupportedError
from ..models.model import Model
from ..models.network import Classifier, Embeddings, to_file_names
from .file import packed
from .graph import described
from .witness import witness

LOOSENED = (1e-9, 1e-11)  # of their size by which bounds are widened, the first with which the proof still holds
CLOSE = 1e-8  # of the largest logit by which the claimed margin is less than the proved one, half of that at most
MOST_NORMALS, MOST_CELLS = 32, 2**24  # of the pieces of a ball, by the specification
SEVERAL = "no certificate can be written: what was proved does not follow from one pass with bounds a little looser"


@dataclass(frozen=True, eq=False)
class Subject:
    """The model and the input that a certificate is about."""

    model: Model
    embeddings: Tensor  # [1, n, d]
    text: str | None
    tokens: tuple[str, ...]
    ids: tuple[int, ...] | None
    label: int


Numbers = dict[str, Tensor]


def of_ball(subject: Subject, problems: Sequence[Problem], instance: int, eps: float) -> bytes:
    """That an instance holds its label within a radius, by the first of some problems that proves it."""
    for problem in problems:
        for loosened in LOOSENED:
            recorded = list(_recorded(problem, instance, eps, loosened))
            if all(_proved(each) for each in recorded):
                words, numbers = _ball(recorded)
                return _certificate(subject, recorded, words, numbers)
    raise UnsupportedError(SEVERAL)


@dataclass(frozen=True, eq=False)
class Substitutes:
    """What may stand at each position: ids, and their embeddings `[choices, d]`, the input's own word among them."""

    ids: dict[int, list[int]]
    embeddings: dict[int, Tensor]


def of_hull(subject: Subject, problem: Problem, choices: Choices, substitutes: Substitutes) -> bytes:
    """That an input holds its label over all mixtures of the substitutes at each position."""
    check(problem)
    for loosened in LOOSENED:
        recorded = Recording.of(problem, choices, 0, loosened=loosened)
        if _proved(recorded):
            return _certificate(subject, [recorded], *_vertices("hull", substitutes))
    raise UnsupportedError(SEVERAL)


def of_points(subject: Subject, graph: Graph, substitutes: Substitutes, margin: float) -> bytes:
    """That an input holds its label at every combination of substitutes.

    The checker evaluates the graph there by itself. Its margins will differ in rounding: half of what is known is said.
    """
    words, numbers = _vertices("points", substitutes)
    claimed = torch.full((graph.output.shape[-1] - 1,), margin / 2, dtype=torch.float64)
    return _whole(subject, graph, words, numbers, [], claimed)


def _recorded(problem: Problem, instance: int, eps: float, loosened: float) -> Iterator[Recording]:
    """The proof of an instance within a radius: one, or one for each of its pieces."""
    check(problem)
    problem = replace(problem, deadline=NEVER)
    radius = torch.tensor([eps], dtype=problem.centre.dtype, device=problem.centre.device)
    if isinstance(problem, Split):
        pieces = replace(problem.alike(instance), deadline=NEVER)
        for j in range(len(pieces)):
            yield Recording.of(pieces, pieces.ball(radius, [j]), j, loosened=loosened)
    else:
        yield Recording.of(problem, problem.ball(radius, [instance]), instance, loosened=loosened)


def check(problem: Problem) -> None:
    """Refuse what the format cannot say."""
    if problem.arithmetic != "real":
        raise UnsupportedError("no certificate can be written with arithmetic='float32': it speaks of real numbers")
    if problem.centre.dtype != torch.float64:
        raise UnsupportedError("no certificate can be written with dtype='float32': use float64")
    if problem.method == "ibp":
        raise UnsupportedError("no certificate can be written with method='ibp': use another")
    if problem.goal is not None or problem.joint or problem.width is not None:
        raise UnsupportedError("no certificate can be written of such a set or goal: a label in balls of one norm each")
    if not problem.style.simplex:
        raise UnsupportedError("no certificate can be written with relaxation='paper': use 'tight'")
    described(problem.compiled.graph)


def _proved(recorded: Recording) -> bool:
    known = all(reason is None for reason in recorded.reasons)
    return known and bool((torch.isfinite(recorded.margin) & (recorded.margin > 0)).all())


def _ball(recorded: Sequence[Recording]) -> tuple[dict[str, Any], Numbers]:
    """The words and numbers of a ball, given the proofs of its pieces."""
    ball = recorded[0].ball
    if not isinstance(ball, Ball) or type(ball) not in (Ball, Piece):
        raise UnsupportedError(f"no certificate can be written of a {type(ball).__name__}")
    words: dict[str, Any] = {"kind": "ball", "p": "inf" if math.isinf(ball.p) else ball.p}
    words["positions"] = ball.hot[0].argmax(dim=1).tolist()
    numbers = {"set.radius": ball.eps[0]}
    pieces = [each.ball for each in recorded if isinstance(each.ball, Piece)]
    if any(not torch.equal(piece.normal, pieces[0].normal) for piece in pieces):
        raise UnsupportedError("no certificate can be written of pieces that are not cut across the same normals")
    if pieces:
        words["pieces"] = True
        numbers["set.normals"] = pieces[0].normal[0].reshape(-1, ball.hot.shape[1], ball.centre.shape[-1])
        numbers["set.low"] = torch.cat([piece.low for piece in pieces])
        numbers["set.high"] = torch.cat([piece.high for piece in pieces])
        _check_grid(torch.cat([numbers["set.low"], numbers["set.high"]]))
    return words, numbers


def _check_grid(ends: Tensor) -> None:
    """Refuse pieces whose ends `[..., normals]` make a grid that is too fine to see that they cover the ball."""
    counts = [len(torch.unique(column[torch.isfinite(column)])) + 1 for column in ends.unbind(dim=1)]
    if len(counts) > MOST_NORMALS or math.prod(counts) > MOST_CELLS:
        raise UnsupportedError(
            f"no certificate can be written of pieces that are cut across {len(counts)} normals in so many places; "
            "use fewer splits"
        )


def _vertices(kind: str, substitutes: Substitutes) -> tuple[dict[str, Any], Numbers]:
    """The words and numbers of a set of substitutes."""
    positions = sorted(substitutes.ids)
    counts = [len(substitutes.ids[p]) for p in positions]
    width = substitutes.embeddings[positions[0]].shape[-1]
    table = torch.zeros(len(positions), max(counts), width, dtype=torch.float64)
    tokens = torch.zeros(len(positions), max(counts), dtype=torch.int64)
    for k, (position, count) in enumerate(zip(positions, counts, strict=True)):
        table[k, :count] = substitutes.embeddings[position]
        tokens[k, :count] = torch.tensor(substitutes.ids[position])
    numbers = {"set.vertices": table, "set.counts": torch.tensor(counts), "set.ids": tokens}
    return {"kind": kind, "positions": positions}, numbers


def _certificate(subject: Subject, recorded: Sequence[Recording], words: dict[str, Any], numbers: Numbers) -> bytes:
    cases = []
    for k, each in enumerate(recorded):
        case, own = witness(each, k)
        cases.append(case)
        numbers |= own
    margin = torch.stack([each.margin for each in recorded]).amin(dim=0)
    size = torch.stack([each.nominal[-1].abs().amax() for each in recorded]).amax()
    claimed = margin - torch.minimum(margin / 2, CLOSE * size)
    return _whole(subject, recorded[0].graph, words, numbers, cases, claimed)


def _whole(
    subject: Subject, graph: Graph, words: dict[str, Any], numbers: Numbers, cases: list[dict[str, Any]], margin: Tensor
) -> bytes:
    nodes, constants = described(graph)
    model = subject.model
    told = {
        "format": "certiformer certificate",
        "version": 1,
        "writer": f"certiformer {__version__}",
        "model": {"name": model.name, "labels": list(model.labels), **_identity(model)},
        "input": {
            "text": subject.text,
            "tokens": list(subject.tokens),
            "ids": None if subject.ids is None else list(subject.ids),
        },
        "graph": nodes,
        "set": words,
        "claim": {"label": subject.label},
        "cases": cases,
    }
    return packed(told, {**constants, **numbers, "input.embeddings": subject.embeddings[0], "claim.margin": margin})


def _identity(model: Model) -> dict[str, str]:
    """Whether the checker can build the graph from a folder, and a SHA-256 of the weights."""
    if not isinstance(model.module, Classifier) or not isinstance(model.embed, Embeddings):
        return {"kind": "graph", "weights": model.hashes()["weights"]}
    found = hashlib.sha256()
    for name, tensor in sorted(to_file_names(model.embed, model.module).items()):
        found.update(name.encode() + b"\0" + ",".join(map(str, tensor.shape)).encode() + b"\0")
        found.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4").tobytes())
    return {"kind": "folder", "weights": found.hexdigest()}
