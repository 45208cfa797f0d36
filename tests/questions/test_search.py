"""Radii: verified, close to where the proof ends, found in few evaluations, below every attack."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import certiformer as cf
from certiformer.core.deadline import NEVER, Deadline
from certiformer.core.problem import Margins
from certiformer.models import bundled
from certiformer.options import Question
from certiformer.questions import closing
from certiformer.questions.bracket import Bracket
from certiformer.questions.closing import Stage, again, proved, verify
from certiformer.questions.inputs import prepare, problem_of
from certiformer.questions.positions import position_sets
from conftest import IDS, random_model

SENTENCES = (
    "a gripping , beautiful film",
    "the plot is a mess and the jokes fall flat",
    "great fun",
    "it 's not bad at all",
    "a dull , lifeless exercise",
    "i loved every minute of it",
    "one of the year 's best films .",
    "too long and far too slow",
    "the acting is superb",
    "an utter waste of time",
)


@pytest.mark.parametrize("method", ["ibp", "forward", "backward", "backward-forward"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_a_radius_is_proved_and_not_much_more_is(method: Any, norm: float) -> None:
    model = random_model(layers=1, scale=0.3, seed=4)
    result = cf.radius(model, IDS, norm=norm, method=method, relaxation="paper", tolerance=1e-3)
    sets = [list(s) for s in result.positions]
    inside = cf.bounds(model, IDS, eps=result.radii, norm=norm, positions=sets, method=method, relaxation="paper")
    assert all(inside.certified)
    past = [r * 1.0025 for r in result.radii]
    outside = cf.bounds(model, IDS, eps=past, norm=norm, positions=sets, method=method, relaxation="paper")
    assert not any(outside.certified)


@pytest.mark.parametrize(
    ("relaxation", "names", "most"),
    [
        ("tight", ("sst_1_small", "sst_2_tiny"), 5.4),
        pytest.param("tight", ("sst_1_small", "sst_2_tiny", "sst_3_tiny"), 5.4, marks=pytest.mark.slow),
        pytest.param("paper", ("sst_1_small", "sst_2_tiny", "sst_3_tiny"), 6.5, marks=pytest.mark.slow),
        pytest.param("tight", ("sst_1_small_standard",), 7.4, marks=pytest.mark.slow),
    ],
)
def test_few_evaluations(
    relaxation: Any, names: tuple[str, ...], most: float, reference: Path, reference_ids: list[list[int]]
) -> None:
    """On average for a width of 1e-3, over models, sentences and norms: where ends are steep too."""
    calls = []
    for name in names:
        model = cf.load(reference / name)
        for sentence, norm in ((0, 1), (2, 2), (0, math.inf)):
            found = cf.radius(
                model, reference_ids[sentence], norm=norm, method="backward-forward", relaxation=relaxation
            )
            calls.append(found.calls)
    assert sum(calls) / len(calls) <= most


def test_pairs_of_words_and_given_sets() -> None:
    model = random_model(layers=1, scale=0.3, seed=6)
    singles = cf.radius(model, IDS, words=1)
    pairs = cf.radius(model, IDS, words=2)
    assert pairs.positions == ((1, 2), (1, 3), (2, 3))
    alone = dict(zip(singles.positions, singles.radii, strict=True))
    for (i, j), r in zip(pairs.positions, pairs.radii, strict=True):
        assert 0 < r <= min(alone[i,], alone[j,]) * 1.001
    given = cf.radius(model, IDS, positions=[[2, 1]])
    assert given.positions == ((1, 2),)
    assert math.isclose(given.radii[0], pairs.radii[0], rel_tol=2e-3)
    assert singles.smallest[1] == min(singles.radii)


def test_many_inputs_give_what_each_gives_alone() -> None:
    model = random_model(layers=1, scale=0.3, seed=8)
    texts = [IDS, [2, 9, 3], [2, 4, 4, 12, 3]]
    for together, ids in zip(cf.radii(model, texts), texts, strict=True):
        alone = cf.radius(model, ids)
        assert together.positions == alone.positions
        assert together.radii == pytest.approx(alone.radii, rel=2e-3)


def test_a_label_that_is_not_the_answer_has_no_radius() -> None:
    model = random_model(scale=0.3)
    other = (cf.radius(model, IDS).label + 1) % 3
    assert set(cf.radius(model, IDS, label=other).radii) == {0.0}


def test_the_bracket_only_ever_reports_what_was_proved() -> None:
    """On margins that jump, the lower end is always a radius that was evaluated with a positive margin."""
    for cliff in (0.3, 1.7, 40.0, 1e-4):
        bracket, proved, steps = Bracket(2.0, 1.0), {0.0}, 0
        while not bracket.closed(1e-3):
            eps = bracket.aim(1e-3, 1.0)
            assert bracket.low < eps < bracket.high
            margin = 2 - eps / cliff if eps < cliff else -math.inf
            bracket.take(eps, margin, rounding=False)
            if margin > 0:
                proved.add(eps)
            steps += 1
            assert steps < 60
        assert bracket.low in proved
        assert cliff * (1 - 2e-3) <= bracket.low < cliff


def closed(bracket: Bracket, margin: Callable[[float], float], *, draft: bool) -> set[float]:
    """Close or settle a bracket on a margin, and say at which radii it was proved."""
    done, proved = (Bracket.settled if draft else Bracket.closed), set()
    for _ in range(60):
        if done(bracket, 1e-3):
            return proved
        eps = bracket.aim(1e-3, 0.05)
        assert bracket.low < eps < bracket.high
        value = margin(eps)
        bracket.take(eps, value, rounding=not draft)
        if value > 0:
            proved.add(eps)
    raise AssertionError(f"not closed: {bracket}")


@example(end=259.375, power=3.5, drop=1.5, off=0.001953125)
@given(
    end=st.floats(1e-6, 1e3),
    power=st.floats(1.0, 8.0),
    drop=st.floats(0.02, 2.0),
    off=st.floats(-0.02, 0.02),
)
def test_a_draft_may_be_wrong_and_only_costs_time(end: float, power: float, drop: float, off: float) -> None:
    """Margins that fall to their end, or off a cliff before it, and a draft that is off by up to two percent."""

    def margin(eps: float) -> float:
        return 3 * (1 - drop * (eps / end) ** power) if eps < end else -math.inf

    true = end * min(1.0, drop ** (-1 / power))
    guess = Bracket(3.0, 1.0)
    closed(guess, lambda eps: margin(eps * (1 + off)), draft=True)
    bracket = guess.followed()
    proved = closed(bracket, margin, draft=False)
    assert bracket.low in proved
    assert true * (1 - 2e-3) <= bracket.low < true


def searched(margin: Callable[[float], float], draft: Callable[[float], float]) -> tuple[int, float]:
    """How many evaluations a draft and its proofs take together, and the radius."""
    calls = [0]

    def counted(f: Callable[[float], float]) -> Callable[[float], float]:
        def called(eps: float) -> float:
            calls[0] += 1
            return f(eps)

        return called

    rough = Bracket(3.0, 1.0)
    closed(rough, counted(draft), draft=True)
    bracket = rough.followed()
    closed(bracket, counted(margin), draft=False)
    return calls[0], bracket.low


def collapsing(end: float, power: float) -> Callable[[float], float]:
    """A margin that bends as those of models do: slowly at first, by a power at its end, and soon past it no more."""

    def margin(eps: float) -> float:
        loss = 0.1 * eps / end + 0.9 * (eps / end) ** power
        return 3 * (1 - loss) if loss < 2 else -math.inf

    return margin


def test_steep_ends_take_few_evaluations() -> None:
    """At most 8 on average, from powers of models with one layer to cliffs, with drafts that are off by 0.3 %."""
    calls = []
    for end in (0.004, 0.03, 0.1, 0.7):
        for power in (2.0, 4.0, 8.0, 20.0, 60.0):
            margin = collapsing(end, power)
            count, radius = searched(margin, lambda eps, margin=margin: margin(eps * 1.003))  # type: ignore[misc]
            assert end * (1 - 2e-3) <= radius < end
            calls.append(count)
    assert sum(calls) / len(calls) <= 8


def test_a_draft_that_proves_nothing_is_given_up() -> None:
    """Single precision may leave something of the loss however small the radius."""
    margin = collapsing(0.03, 3.0)
    count, radius = searched(margin, lambda eps: margin(eps) - 4)
    assert 0.03 * (1 - 2e-3) <= radius < 0.03
    assert count <= 10


def together(
    margins: list[Callable[[float], float]],
    *,
    draft: float = 1.0,
    method: str = "backward",
    deadline: Deadline = NEVER,
    guesses: list[float] | None = None,
) -> tuple[list[int], list[float]]:
    """How many evaluations each of some instances of one model takes, and its radius; a draft is off by a factor, and
    "ibp" has none. Where ends are guessed, four fifths of that are proved before."""

    def problem(off: float, made: Any) -> Any:
        def bounded(eps: torch.Tensor, chosen: list[int], *, rounding: bool) -> Any:
            values = [margins[i](e * off) for i, e in zip(chosen, eps.tolist(), strict=True)]
            return SimpleNamespace(least=torch.tensor(values, dtype=torch.float64))

        centre = torch.ones(1, dtype=torch.float64)
        return SimpleNamespace(centre=centre, p=2.0, method=method, deadline=deadline, margins=bounded, draft=made)

    whole = problem(1.0, lambda: None if method == "ibp" else problem(draft, None))
    brackets = [Bracket(3.0, 1.0) for _ in margins]
    stage = Stage(1e-3, [0] * len(margins), [], lambda _: None)
    if guesses is not None:
        return stage.calls, again(whole, [3.0] * len(margins), [0.8 * g for g in guesses], guesses, stage)
    radii = proved(whole, brackets, list(range(len(margins))), stage)
    return stage.calls, radii


ENDS = [0.02 * 1.15**k for k in range(8)]


def off_a_cliff(end: float) -> Callable[[float], float]:
    """A margin that says nothing before its end, nor past it."""
    return lambda eps: 3.0 if eps < end else -math.inf


@pytest.mark.parametrize(("power", "most"), [(1.5, 5.0), (4.0, 6.0), (12.0, 6.5), (30.0, 7.5)])
def test_words_that_lose_alike_tell_each_other_how(power: float, most: float) -> None:
    """The ends are from a fiftieth of the linearised radius on, and half as far from each other."""
    calls, radii = together([collapsing(end, power) for end in ENDS], draft=1.003)
    assert all(end * (1 - 2e-3) <= radius < end for end, radius in zip(ENDS, radii, strict=True))
    assert sum(calls) / len(calls) <= most


@given(powers=st.lists(st.floats(1.0, 60.0), min_size=6, max_size=6), cliffs=st.sets(st.integers(0, 5)))
@example([1.0, 1.0, 1.0, 27.0, 1.0, 1.0], set())  # the curve of others falls again where this one goes on
@example([60.0, 1.0, 1.0, 60.0, 2.0, 2.0], {4})  # and ends, by it, before its end
def test_words_that_lose_otherwise_than_others_are_searched_as_far(powers: list[float], cliffs: set[int]) -> None:
    """What the first ones tell may be wrong for the rest, which then costs time and nothing else."""
    ends = ENDS[:6]
    margins = [off_a_cliff(e) if k in cliffs else collapsing(e, powers[k]) for k, e in enumerate(ends)]
    calls, radii = together(margins)
    assert all(end * (1 - 2e-3) <= radius < end for end, radius in zip(ends, radii, strict=True))
    assert max(calls) <= 30


@given(
    powers=st.lists(st.floats(1.0, 60.0), min_size=6, max_size=6),
    cliffs=st.sets(st.integers(0, 5)),
    guessed=st.one_of(st.none(), st.lists(st.floats(0.9, 1.2), min_size=6, max_size=6)),
    method=st.sampled_from(["ibp", "backward"]),
)
@example([2.0, 60.0, 46.0, 1.0, 60.0, 60.0], set(), [1.0] * 6, "ibp")  # one proof is no end
def test_without_drafts_or_in_a_time_they_are_searched_as_far(
    powers: list[float], cliffs: set[int], guessed: list[float] | None, method: str
) -> None:
    """What is not drafted is the same with a time that is enough as without, evaluation by evaluation."""
    ends = ENDS[:6]
    margins = [off_a_cliff(e) if k in cliffs else collapsing(e, powers[k]) for k, e in enumerate(ends)]
    guesses = guessed and [g * e for g, e in zip(guessed, ends, strict=True)]
    found = together(margins, method=method, deadline=Deadline.after(1e6), guesses=guesses)
    calls, radii = found
    assert all(end * (1 - 2e-3) <= radius < end for end, radius in zip(ends, radii, strict=True))
    assert max(calls) <= 30
    if method == "ibp":
        assert together(margins, method=method, guesses=guesses) == found


@pytest.mark.parametrize("off", [1.0, 1.0005, 0.9995])
def test_off_a_cliff_what_a_draft_left_open_is_halved(off: float) -> None:
    """Some ten halvings from a factor of two to the tolerance, the way there, and no second search from the start."""
    calls, radii = together([off_a_cliff(end) for end in ENDS], draft=off)
    assert all(end * (1 - 2e-3) <= radius < end for end, radius in zip(ENDS, radii, strict=True))
    assert sum(calls) / len(calls) <= 15


def test_where_drafts_mislead_the_others_do_without() -> None:
    """Drafts that see an end at half the way: so it is in single precision where models are saturated."""
    calls, radii = together([off_a_cliff(end) for end in ENDS], draft=2.0)
    assert all(end * (1 - 2e-3) <= radius < end for end, radius in zip(ENDS, radii, strict=True))
    assert sum(calls) / len(calls) <= 19
    assert sorted(calls)[4] <= 15


@pytest.mark.parametrize("more", [{}, {"splits": 2}, {"steps": 2}])
def test_progress_only_goes_up_and_ends_with_the_search(more: dict[str, Any]) -> None:
    seen: list[tuple[int, int]] = []
    asked: dict[str, Any] = {"tolerance": 0.1, **more}
    cf.radius(random_model(scale=0.3), IDS, progress=lambda done, total: seen.append((done, total)), **asked)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == seen[0][1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [0.3, 0.0])
def test_what_never_holds_with_rounding_ends_at_zero(dtype: torch.dtype, low: float) -> None:
    """Proved without rounding, down to the smallest number there is, and never with it."""
    low = low or float(torch.finfo(dtype).tiny)
    refused = Margins(torch.full((1, 1), -1.0), torch.ones(1, 1), (None,), torch.full((1,), -1.0))
    problem: Any = SimpleNamespace(centre=torch.zeros(1, dtype=dtype), margins=lambda *_, **__: refused)
    calls = [0]
    assert verify(problem, [Bracket(1.0, 1.0, low=low)], calls, 1e-3) == [0.0]
    assert 0 < calls[0] < 60


def test_what_single_precision_cannot_see_is_found_in_double() -> None:
    """A margin of 1e-9, far below the rounding of float32: the draft says nothing, or the wrong thing."""
    model = random_model(layers=1, scale=0.3, seed=8)
    prepared = prepare(model, IDS)
    gap = float(prepared.logits[0].amax() - prepared.logits[0].sort().values[-2])
    with torch.no_grad():
        model.module.classifier.bias[prepared.label] -= gap - 1e-9
    found = cf.radius(model, IDS, tolerance=1e-2)
    assert found.label == prepared.label
    assert 0 < found.margin < 1e-6
    assert all(r > 0 for r in found.radii)
    attacked = cf.attack(model, IDS)
    assert all(r <= a for r, a in zip(found.radii, attacked.radii, strict=True))


@pytest.mark.parametrize("change", [{"tolerance": 0}, {"tolerance": 2}, {"method": "best"}, {"budget": "endless"}])
def test_bad_options_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(cf.InputError, match=next(iter(change))):
        cf.radius(random_model(), IDS, **change)


@pytest.mark.parametrize("positions", [[[]], [[1], []], [1.5], [None], [torch.tensor(1)], [[1], 1.5]])
def test_what_is_no_set_of_positions_is_named(positions: Any) -> None:
    with pytest.raises(cf.InputError, match="positions="):
        cf.radius(random_model(), IDS, positions=positions)


def test_one_text_is_not_a_list_of_them() -> None:
    with pytest.raises(cf.InputError, match="expected a list of inputs"):
        cf.radii(random_model(), "abc")


def test_auto_says_what_it_chose() -> None:
    model = random_model(layers=2)
    quick = cf.radius(model, IDS, budget="fast")
    assert quick.method == "backward"
    assert "tight" in quick.chosen
    paper = cf.radius(model, IDS, relaxation="paper")
    assert (paper.method, paper.relaxation) == ("backward-forward", "paper")


def check_against_attack(triples: int, seed: int) -> None:
    models = [cf.Certifier(model, budget="fast") for model in bundled()]  # each is captured once
    assert models, "the bundled models are part of the package"
    generator = torch.Generator().manual_seed(seed)

    def pick(n: int) -> int:
        return int(torch.randint(n, (), generator=generator))

    done = 0
    while done < triples:
        model, text, norm = models[pick(len(models))], SENTENCES[pick(len(SENTENCES))], (1, 2, math.inf)[pick(3)]
        sets = position_sets(prepare(model.model, text), Question())
        chosen = [list(sets[pick(len(sets))]) for _ in range(min(4, len(sets)))]
        proved = model.radius(text, norm=norm, positions=chosen)
        attacked = model.attack(text, norm=norm, positions=chosen)
        for certified, upper in zip(proved.radii, attacked.radii, strict=True):
            assert 0 < certified <= upper
        done += len(chosen)


def test_certified_is_at_most_attacked_on_the_bundled_models() -> None:
    check_against_attack(8, seed=0)


@pytest.mark.slow
def test_certified_is_at_most_attacked_on_200_triples() -> None:
    check_against_attack(200, seed=1)


@pytest.mark.parametrize(
    ("name", "sentence", "p"),
    [
        ("sst_1_small", 0, 2.0),
        pytest.param("sst_2_tiny", 0, 2.0, marks=pytest.mark.slow),
        ("sst_2_tiny", 0, math.inf),
        ("sst_1_small", 1, 1.0),
    ],
)
def test_tight_reaches_the_reference(
    name: str, sentence: int, p: float, reference: Path, reference_radii: Any, reference_ids: list[list[int]]
) -> None:
    """Backward with softmax in one piece, simplex shift and score differences: within 1 %, and below every attack."""
    stated = reference_radii[name, sentence, p, "backward, tight"]
    model = cf.load(reference / name)
    found = cf.radius(model, reference_ids[sentence], norm=p, method="backward", relaxation="tight", budget="tight")
    paper = cf.radius(model, reference_ids[sentence], norm=p, method="backward-forward", relaxation="paper")
    for (i,), r, floor in zip(found.positions, found.radii, paper.radii, strict=True):
        assert r >= 0.99 * stated[i]
        assert r >= 0.999 * floor
    if (name, sentence, p, "PGD upper bound") in reference_radii:
        upper = reference_radii[name, sentence, p, "PGD upper bound"]
        assert all(r <= upper[i] for (i,), r in zip(found.positions, found.radii, strict=True))


def test_standard_layer_norm_is_certified_three_times_as_far(reference: Path, reference_ids: list[list[int]]) -> None:
    model = cf.load(reference / "sst_1_small_standard")
    result = cf.radius(model, reference_ids[0], norm=2, relaxation="tight")
    assert sum(result.radii) / len(result.radii) >= 0.075
    attacked = cf.attack(model, reference_ids[0], norm=2)
    assert all(r <= a for r, a in zip(result.radii, attacked.radii, strict=True))


def test_problem_of_describes_itself() -> None:
    prepared = prepare(random_model(), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="ibp", relaxation="paper")
    assert problem.described == "interval propagation"


@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"relaxation": "paper"}, {"method": "ibp"}, {"splits": 2}, {"steps": 2}]
)
def test_every_radius_was_itself_evaluated_with_rounding(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the precision that was asked for, and found positive: whatever a draft has said."""
    proofs: set[float] = set()
    margin = closing.margin

    def watched(problem: Any, eps: list[float], chosen: list[int], *, rounding: bool) -> list[float]:
        found = margin(problem, eps, chosen, rounding=rounding)
        asked = torch.float32 if more.get("dtype") == "float32" else torch.float64
        if rounding and problem.centre.dtype == asked:
            proofs.update(e for e, m in zip(eps, found, strict=True) if m > 0)
        return found

    monkeypatch.setattr(closing, "margin", watched)
    radii = cf.radius(random_model(scale=0.3), IDS, **more).radii
    assert max(radii) > 0
    assert {r for r in radii if r > 0} <= proofs


@pytest.mark.parametrize("method", ["ibp", "forward", "backward", "backward-forward"])
def test_the_same_question_has_the_same_answer_whatever_was_asked_before(method: Any) -> None:
    """To the last bit: sweeps in windows that earlier ones chose would add in another order."""
    asked: dict[str, Any] = {"method": method, "tolerance": 1e-2}
    certifier = cf.Certifier("sst-1", **asked)
    text = "a very good film with some funny moments in it"
    first = certifier.radius(text, norm=2)
    certifier.bounds(text, eps=0.01)
    assert certifier.radius(text, norm=2).radii == first.radii
    assert cf.Certifier("sst-1", **asked).radius(text, norm=2).radii == first.radii


def test_where_no_margin_says_anything_pieces_reach_what_they_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    bracket = Bracket(1.0, 2.0, low=2.0, guess=2.0)
    bracket.take(2.06, -50.0, rounding=False)  # the bounds have broken down there
    assert bracket.seen
    assert not bracket.telling
    monkeypatch.setattr(closing, "close", lambda *args, **kwargs: None)
    problem = problem_of([(prepare(random_model(layers=1), IDS), (1,))], p=2.0, method="backward", relaxation="tight")
    assert closing.reached(problem, [bracket], [0]) == [2.0]
