"""Evaluations that are recorded: the same numbers, recorded the second time, and never where there is no GPU."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from certiformer.core.branch import Branching
from certiformer.core.deadline import NEVER
from certiformer.core.goal import Clause, Goal
from certiformer.core.ops.base import Box
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball
from certiformer.core.speed import replay
from certiformer.core.speed.replay import KEPT, Asked, Evaluation, Recording, Replays, Store
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model

EPS = torch.tensor([0.01, 0.02, 0.005], dtype=torch.float64)
WIDE = 1.0  # where nothing is proved of the model below, so that balls are cut


def problem(
    method: Any = "backward",
    relaxation: Any = "tight",
    device: str = "cpu",
    p: float = 2.0,
    layer_norm: str = "no_var",
) -> Problem:
    prepared = prepare(random_model(layers=2, layer_norm=layer_norm, scale=0.3, seed=2), IDS, device=device)
    return problem_of([(prepared, s) for s in ((1,), (2,), (1, 3))], p=p, method=method, relaxation=relaxation)


def some_and_all(device: str = "cpu") -> Problem:
    """All words move, or two or one, in one order or the other."""
    prepared = prepare(random_model(layers=2, scale=0.3, seed=2), IDS, device=device)
    every = tuple(range(prepared.embeddings.shape[1]))
    sets = (every, (*every[1:], 0), every)
    return problem_of([(prepared, s) for s in sets], p=2.0, method="backward", relaxation="tight")


def test_nothing_is_recorded_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("an evaluation on a CPU was to be recorded")

    monkeypatch.setattr(Replays, "__call__", never)
    asked = problem()
    first, second = asked.margins(EPS), asked.margins(EPS)
    assert torch.equal(first.lower, second.lower)
    assert not asked.compiled.replays.seen


def test_one_key_means_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of one, of two and of all words in one problem: when only those of one are left, the recording of two is not
    for them, nor that of all, which picks nothing out, for any other."""
    shapes: dict[Any, set[Any]] = {}

    def kept(self: Replays, key: Any, evaluate: Any, asked: Asked) -> Evaluation:
        shapes.setdefault(key, set()).add((asked.kind, tuple(x.shape for x in asked.tensors)))
        result: Evaluation = evaluate(asked)
        return result

    for asked, keys in ((problem(), 2), (some_and_all(), 2)):
        plain = asked.margins(EPS)
        object.__setattr__(asked.compiled, "cuda", True)
        monkeypatch.setattr(Replays, "__call__", kept)
        for chosen in ([0, 1, 2], [0, 1], [2], [1]):
            found = asked.margins(EPS[chosen], chosen)
            assert torch.allclose(found.lower, plain.lower[chosen], rtol=1e-9)
        assert len(shapes) == keys
        assert all(len(s) == 1 for s in shapes.values())
        shapes.clear()
        monkeypatch.undo()


def test_a_recording_is_not_replayed_on_other_shapes() -> None:
    one, two = (Ball.of(torch.zeros(1, 1, 4, 3), [at], torch.ones(1), 2.0) for at in ((0,), (0, 1)))
    recording = Recording(Asked(two, torch.zeros(1, 1), {}), SimpleNamespace(replay=lambda: None), None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="recorded with"):
        recording(Asked(one, torch.zeros(1, 1), {}))


def test_nor_on_what_is_computed_otherwise() -> None:
    """The same shapes: all positions in their order, of which nothing is picked out, and in another order."""
    every, turned = (Ball.of(torch.zeros(1, 1, 2, 3), [at], torch.ones(1), 2.0) for at in ((0, 1), (1, 0)))
    rows, own = torch.zeros(1, 1), {3: (torch.zeros(1, 2),)}
    recording = Recording(Asked(every, rows, own), SimpleNamespace(replay=lambda: None), None)  # type: ignore[arg-type]
    for other in (Asked(turned, rows, own), Asked(every, rows, {4: own[3]}), Asked(every, rows, own, rows)):
        with pytest.raises(ValueError, match="recorded of"):
            recording(other)


class Counted:
    """An evaluation that says how often it ran, and recordings of it that need no GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, breaks: bool = False) -> None:
        self.ran, self.recordings, self.took = 0, 0, 0
        self.breaks = breaks
        self.ball = Ball.of(torch.zeros(1, 1, 2, 3), [(0,)], torch.ones(1), 2.0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=800))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(Recording, "of", self.record)

    def record(self, evaluate: Any, asked: Asked, pool: Any) -> Any:
        if self.breaks:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recordings += 1
        return lambda asked: evaluate(asked)._replace(whys=["replayed"])

    def evaluate(self, asked: Asked) -> Evaluation:
        self.ran += 1
        return Evaluation(Box(asked.rows, asked.rows), torch.ones(1, 1, dtype=torch.bool), ["plain"], self.took)

    def ask(self, replays: Replays, key: Any, took: int = 0) -> str:
        self.took = took
        return replays(key, self.evaluate, Asked(self.ball, torch.zeros(1, 1), {})).whys[0]


def test_an_evaluation_is_recorded_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, replays = Counted(monkeypatch), Replays(Store())
    assert [counted.ask(replays, "a") for _ in range(4)] == ["plain", "replayed", "replayed", "replayed"]
    assert counted.recordings == 1
    assert counted.ask(replays, "b") == "plain"


def test_what_keeps_the_gpu_busy_by_itself_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, replays = Counted(monkeypatch), Replays(Store())
    assert [counted.ask(replays, "a", took=161) for _ in range(3)] == ["plain"] * 3
    assert (counted.recordings, replays.refused) == (0, {"a"})


def test_what_cannot_be_recorded_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, replays = Counted(monkeypatch, breaks=True), Replays(Store())
    assert [counted.ask(replays, "a") for _ in range(3)] == ["plain"] * 3
    assert (counted.ran, replays.refused) == (3, {"a"})


def test_the_oldest_recordings_of_an_owner_are_let_go_whatever_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, store = Counted(monkeypatch), Store()
    first, second = Replays(store), Replays(store)
    for replays, keys in ((first, "ab"), (second, range(KEPT - 1))):
        for key in keys:
            assert [counted.ask(replays, key) for _ in range(2)] == ["plain", "replayed"]
    assert (list(first.recorded), len(second.recorded)) == (["b"], KEPT - 1)
    assert first.pool
    assert counted.ask(second, "another") == "plain"
    assert counted.ask(second, "another") == "replayed"
    assert (first.recorded, first.pool) == ({}, [])  # and the memory with the last one
    assert counted.ask(first, "b") == "replayed"
    assert list(second.recorded) == [*range(1, KEPT - 1), "another"]


def test_small_batches_get_their_own_recording_when_they_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, replays = Counted(monkeypatch), Replays(Store())
    assert replays.fitting(["1", "2", "4"]) == 2  # nothing is recorded: the largest, which serves all
    assert [counted.ask(replays, "4") for _ in range(2)] == ["plain", "replayed"]
    assert [replays.fitting(["1", "2", "4"]) for _ in range(replay.OFTEN)] == [2] * replay.OFTEN
    assert replays.fitting(["1", "2", "4"]) == 0
    assert counted.ask(replays, "1") == "replayed"
    assert [replays.fitting(["1", "2", "4"]), replays.fitting(["2", "4"]), replays.fitting(["4"])] == [0, 1, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_batches_of_all_sizes_agree() -> None:
    asked, eps = problem(device="cuda"), EPS.cuda()
    for _ in range(replay.OFTEN + 3):
        whole = asked.margins(eps)
        for chosen in ([0], [1], [0, 1]):
            torch.testing.assert_close(
                asked.margins(eps[chosen], chosen).lower, whole.lower[chosen], rtol=1e-9, atol=1e-9
            )
    assert len(asked.compiled.replays.recorded) > 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("method", ["forward", "backward", "backward-forward"])
@pytest.mark.parametrize("relaxation", ["paper", "tight"])
@pytest.mark.parametrize("layer_norm", ["no_var", "standard"])
def test_replayed_bounds_are_the_plain_ones_exactly(
    method: str, relaxation: str, layer_norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "OFTEN", 1000)
    asked = problem(method, relaxation, "cuda", layer_norm=layer_norm)
    eps = EPS.cuda()
    for rounding in (False, True):
        for scale in (1.0, 1.0, 0.5, 0.1):  # plain, recorded, replayed at other radii
            for chosen in ([0, 1, 2], [2, 0], [1]):
                radii = scale * eps[chosen]
                found = asked.margins(radii, chosen, rounding=rounding)
                padded = chosen + chosen[:1] * (3 - len(chosen))
                plain, reasons = asked.over(
                    asked.ball(torch.cat([radii, radii[:1].expand(3 - len(chosen))]), padded), padded, rounding=rounding
                )
                assert torch.equal(found.lower, plain.lower[: len(chosen)])
                assert torch.equal(found.upper, plain.upper[: len(chosen)])
                assert list(found.reasons) == reasons[: len(chosen)]
    assert asked.compiled.replays.recorded
    assert not asked.compiled.replays.refused


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("first", [[0], [1]])
def test_sets_of_all_words_and_of_some_share_no_recording(first: list[int]) -> None:
    asked, eps = some_and_all("cuda"), EPS.cuda()
    for chosen in (first, first, first, [0], [1], [0, 1], [1, 2], [0, 2]):
        found = asked.margins(eps[chosen], chosen)
        plain, _ = asked.over(asked.ball(eps[chosen], chosen), chosen)
        torch.testing.assert_close(found.lower, plain.lower, rtol=1e-9, atol=1e-9)
    assert asked.compiled.replays.recorded


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))],
)
def test_goals_that_differ_in_their_limits_alone_climb_each_by_its_own(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording reads what it is given and nothing else: on a CPU, the first evaluation of a kind is asked again."""
    plain = problem(device=device).draft()
    assert plain is not None
    eps = EPS.to(device)
    start, _ = plain._climbing(eps, [0, 1, 2], 3)
    lower = plain.margins(eps, rounding=False).lower
    if device == "cpu":
        first: dict[Any, Any] = {}
        object.__setattr__(plain.compiled, "cuda", True)
        monkeypatch.setattr(Replays, "__call__", lambda _, key, made, asked: first.setdefault(key, made)(asked))
    rows = plain.rows([0])[0, :, 0].double()
    for shift in (0.0, 0.0, 0.0, 5.0, -5.0):
        goal = Goal(rows, torch.full((len(rows),), shift, dtype=torch.float64), (Clause((0,), 1),))
        _, step = replace(plain, goal=goal)._climbing(eps, [0, 1, 2], 3)
        torch.testing.assert_close(step(start.parameters).reached, lower[:, 0] - shift, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_large_evaluations_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SHARE", 0.0)
    asked = problem(device="cuda")
    first, second = (asked.margins(EPS.cuda()) for _ in range(2))
    assert torch.equal(first.lower, second.lower)
    assert not asked.compiled.replays.recorded


def pieces(device: str) -> Problem:
    """Seven pieces with planes of their own, cut across one normal or two."""
    whole = problem(device=device)
    branching, radii = Branching(whole), [WIDE] * 3
    branching.grow(radii, 3)
    branching.leaves = branching.leaves[:7]
    assert len(branching.leaves) == 7
    branching.tune(radii, NEVER)
    return branching.split().pieces


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("count", [7, 5, 3, 1])
def test_pieces_are_replayed_with_planes_of_their_own(count: int) -> None:
    asked, chosen = pieces("cuda"), list(range(count))
    plain, reasons = asked.over(asked.ball(torch.full((count,), WIDE).cuda(), chosen), chosen)
    for _ in range(4):
        found = asked.margins(torch.full((count,), WIDE).cuda(), chosen)
        torch.testing.assert_close(found.lower, plain.lower, rtol=1e-9, atol=1e-9)
        assert list(found.reasons) == reasons
    assert asked.compiled.replays.recorded
    assert not asked.compiled.replays.refused


@pytest.mark.parametrize("enabled", [False, True])
def test_garbage_waits_while_a_recording_is_made(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with replay.uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gradients_are_replayed() -> None:
    asked = pieces("cuda").draft()
    assert asked is not None
    start, step = asked._climbing(torch.full((3,), WIDE).cuda(), [0, 1, 2], 32)
    plain = step(start.parameters)
    for _ in range(3):
        replayed = step(start.parameters)
        torch.testing.assert_close(replayed.gradient, plain.gradient, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(replayed.reached, plain.reached)
    assert plain.gradient.abs().sum() > 0
    assert any("climb" in str(key) for key in asked.compiled.replays.recorded)


@pytest.mark.parametrize("layer_norm", ["no_var", "standard"])
def test_an_evaluation_copies_no_numbers_to_its_device(layer_norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy from the memory of the host cannot be recorded, of a gradient neither."""
    made = torch.tensor

    def refusing(*args: Any, **given: Any) -> Tensor:
        assert given.get("device") is None, f"torch.tensor({args}, device=...)"
        return made(*args, **given)

    asked = problem("backward", "tight", "cpu", layer_norm=layer_norm)
    asked.margins(EPS)
    ball, rows = asked.ball(EPS, [0, 1, 2]), asked.rows([0, 1, 2])
    start, step = asked._climbing(EPS, [0, 1, 2], 3)
    monkeypatch.setattr(torch, "tensor", refusing)
    asked._evaluated(Asked(ball, rows, {}), True)
    step(start.parameters)
