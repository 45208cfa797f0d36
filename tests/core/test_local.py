"""Nodes at which every sweep may stop: the bounds are the same as if it went on to the input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from certiformer.core.speed.memory import Footprints
from kinds import KINDS, PLANS, SETS, asked, prepared
from spread import spread


@pytest.mark.parametrize(("kind", "plan"), spread([*KINDS, "products"], PLANS, times=3))
def test_bounds_are_those_of_sweeps_down_to_the_input(kind: str, plan: tuple[str, str]) -> None:
    (method, relaxation), turn = plan, [*KINDS, "products"].index(kind) + PLANS.index(plan)
    p, eps = ((1.0, 0.02), (2.0, 0.02), (math.inf, 0.004))[turn % 3]  # every kind and every plan meets each norm
    short = asked(kind, p, method, relaxation)
    assert short.compiled.local
    whole = replace(short, compiled=replace(short.compiled, local={}), footprints=Footprints())
    radii = torch.full((len(SETS),), eps, dtype=torch.float64)
    found, expected = (each.margins(radii, rounding=False) for each in (short, whole))
    assert found.reasons == expected.reasons == (None,) * len(SETS)
    torch.testing.assert_close(found.lower, expected.lower, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.upper, expected.upper, rtol=1e-9, atol=1e-12)
    rounded = short.margins(radii)  # what is taken off for rounding differs, but not that it is
    assert (rounded.lower <= found.lower).all()
    assert (rounded.upper >= found.upper).all()
    torch.testing.assert_close(rounded.lower, found.lower, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_local_node_is_its_block_at_every_position(kind: str) -> None:
    """Its value moves with the input as the block says, at the positions that it holds and at no other."""
    graph = asked(kind, 2.0, "backward", "paper").compiled
    x = prepared(kind).embeddings[None]
    step = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before, after = graph.graph.values(x), graph.graph.values(x + step)
    for index, local in graph.local.items():
        node = graph.graph.nodes[index]
        count = node.shape[local.axis]
        moved = (after[index] - before[index])[0].movedim(local.axis, 0).flatten(1)
        expected = step[0, 0, local.start : local.start + count] @ local.block.T
        torch.testing.assert_close(moved, expected, rtol=1e-9, atol=1e-9)
    starts = {local.start for local in graph.local.values()}
    assert (2 in starts or 4 in starts) == ("read" in kind)


def test_what_mixes_positions_or_bends_is_not_local() -> None:
    graph = asked("random 2", 2.0, "backward", "paper").compiled
    first = min(n.index for n in graph.graph.nodes if n.op.name == "matmul")
    assert all(n.op.exact for n in graph.graph.nodes if n.index in graph.local)
    assert {graph.graph.nodes[i].op.name for i in graph.local} >= {"linear", "permute"}
    assert not any(first in local.chain for local in graph.local.values())
