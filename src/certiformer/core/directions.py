"""In which directions a piece may be cut: those in which what bends the model moves most. A poor one costs time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .graph.graph import Graph
from .sets import Ball, Cuts

DRAWS = 8  # random combinations of the entries of nodes, whose gradients say how they move
ALIKE = 0.9  # cosine from which on two directions are the same
LEFT = 0.3  # of a direction that must be left across those that the piece is cut across already


class Group(NamedTuple):
    """Nodes that are looked at together, and how many directions they give."""

    name: str
    nodes: tuple[int, ...]
    most: int


def groups(graph: Graph) -> list[Group]:
    """What moves: scores of all layers, of each layer, what is normalised, and the input of the last that bends."""
    scores = [n.inputs[0] for n in graph.nodes if n.op.simplex and n.perturbed]
    normal = [n.inputs[0] for n in graph.nodes if n.op.distances and n.perturbed]
    bent = [i for n in graph.nodes if n.perturbed and not n.op.exact for i in n.inputs if graph.nodes[i].perturbed]
    found = [Group("scores", tuple(scores), 2)] if scores else []
    if len(scores) > 1:
        found += [Group(f"scores {k + 1}", (i,), 1) for k, i in enumerate(scores)]
    if bent:
        found.append(Group("last", (bent[-1],), 1))
    if normal:
        found += [Group("normalised", tuple(normal), 1), Group("last normalised", (normal[-1],), 1)]
    return found or ([Group("all", tuple(bent), 2)] if bent else [])


def directions(graph: Graph, ball: Ball, cuts: Cuts, chosen: Sequence[Group], most: Tensor) -> Tensor:
    """Directions `[pieces, candidates, t, d]`, each of length 1 and across the normals of its piece; zeros for none.

    `ball` holds the balls of the pieces: the gradients are those in the middle of each piece. Of each piece the first
    ones are looked for, so many as `most` `[pieces]` says.
    """
    generator = torch.Generator().manual_seed(0)
    middle = cuts.point(ball)
    normal = cuts.normal[:, :, : ball.hot.shape[1]].flatten(2)
    x = ball.centre + torch.einsum("ztd,ztn->znd", middle, ball.hot)[:, None]
    x = x.clone().requires_grad_(True)
    found: list[Tensor] = []
    with torch.enable_grad():
        values = graph.values(x)
    for group in chosen:
        rows = _moves(graph, ball, values, x, group, generator)
        found += [rows[:, k] for k in range(min(group.most, rows.shape[1]))]
        across = _across(torch.stack(found, dim=1), normal)
        count = across.any(dim=2).long().cumsum(dim=1)
        if bool((count[:, -1] >= most).all()):
            break
    across = torch.where((count > most[:, None])[:, :, None], 0, across)
    return across.reshape(*across.shape[:2], *middle.shape[1:])


def _moves(
    graph: Graph, ball: Ball, values: list[Tensor], x: Tensor, group: Group, generator: torch.Generator
) -> Tensor:
    """In which directions nodes of a group move, those in which they move most first: `[pieces, draw, t d]`."""
    moves = []
    for _ in range(DRAWS):
        draws = [torch.randn(graph.nodes[i].shape, generator=generator, dtype=x.dtype).to(x) for i in group.nodes]
        with torch.enable_grad():
            total = torch.stack([(values[i] * draw).sum() for i, draw in zip(group.nodes, draws, strict=True)]).sum()
        (gradient,) = torch.autograd.grad(total, x, retain_graph=True)
        moves.append(torch.einsum("zund,ztn->ztd", gradient, ball.hot))
    gradients = torch.stack(moves, dim=1).nan_to_num(0.0, 0.0, 0.0).flatten(2)
    found: Tensor = torch.linalg.svd(gradients.cpu(), full_matrices=False)[2].to(gradients)  # a GPU takes one by one
    return found


def _across(found: Tensor, normal: Tensor) -> Tensor:
    """Directions `[pieces, c, m]` without their parts along normals `[pieces, k, m]`; zeros where little is left, or
    where an earlier one is much the same."""
    for _ in range(2):
        found = found - torch.einsum("zck,zkm->zcm", torch.einsum("zcm,zkm->zck", found, normal), normal)
    size = torch.linalg.vector_norm(found, dim=2, keepdim=True)
    found = torch.where(size > LEFT, found / torch.where(size > 0, size, 1), 0)
    for k in range(1, found.shape[1]):
        same = torch.einsum("zcm,zm->zc", found[:, :k], found[:, k]).abs().amax(dim=1) > ALIKE
        found[:, k] = torch.where(same[:, None], 0, found[:, k])
    return found
