"""The plan: parts of equal cost that make up the whole, the same on every machine."""

from __future__ import annotations

import pytest

from certiformer.data import Example
from certiformer.errors import InputError
from certiformer.models import load
from certiformer.options import Options
from certiformer.sweep import plan
from certiformer.sweep.decide import Asked
from certiformer.sweep.options import Running, Selection, SweepCall, SweepQuestion
from certiformer.sweep.worker import Case, Job
from sweeping import sentences


@pytest.fixture(scope="module")
def job(model) -> Job:
    asked = Asked(2.0, 1, SweepQuestion(eps="0.1"), Options(threads=1, max_memory=1 << 30))
    return Job((load(model),), (Case(0, asked),))


@pytest.fixture(scope="module")
def chosen() -> list[tuple[int, Example]]:
    return [(i, Example(label, tuple(text.split()))) for i, (text, label) in enumerate(sentences(200))]


def test_shards_are_a_partition_of_equal_costs(job, chosen):
    whole = plan.batches(job, chosen, None)
    assert sorted(b.items[0].number for b in whole) == list(range(200))
    for n in (1, 3, 8):
        parts = [plan.shard(whole, (k + 1, n)) for k in range(n)]
        keys = [item.key for part in parts for b in part for item in b.items]
        assert len(keys) == len(set(keys)) == 200
        costs = [sum(b.cost for b in part) for part in parts]
        assert max(costs) <= 1.1 * min(costs)


def test_longer_sentences_cost_more_and_batches_are_of_one_length(job, chosen):
    found = plan.batches(job, chosen, 12)
    assert {b.length for b in found} == {4, 5, 6, 7, 8}
    by_length = {b.length: b.cost / len(b.items) for b in found}
    assert [by_length[n] for n in sorted(by_length)] == sorted(by_length.values())
    for batch in found:
        assert len({len(item.text.split()) for item in batch.items}) == 1
        assert len(batch.items) * len(batch.items[0].text.split()) <= 12


def test_units_hold_every_batch_once_and_cost_about_the_same(job, chosen):
    pending = plan.batches(job, chosen, None)
    units = plan.units(pending, job, workers=2)
    keys = [key for unit in units for key in unit.keys]
    assert sorted(keys) == sorted(item.key for b in pending for item in b.items)
    mean = sum(u.cost for u in units) / len(units)
    assert max(u.cost for u in units) <= 2 * mean
    assert len(units) <= 2.2 * 2 * plan.UNITS


def test_a_draw_is_the_same_every_time_and_keeps_the_order(chosen):
    examples = [e for _, e in chosen]
    some = plan.select(examples, Selection(sentences=20, draw=1))
    assert some == plan.select(examples, Selection(sentences=20, draw=1)) == sorted(some, key=lambda pair: pair[0])
    assert some != plan.select(examples, Selection(sentences=20))
    assert {len(e.words) for _, e in plan.select(examples, Selection(max_length=3))} == {2, 3}
    with pytest.raises(InputError, match="no sentence of the 200 is as short"):
        plan.select(examples, Selection(max_length=1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shard": "0/4"}, "shard='0/4': expected K/N"),
        ({"shard": "5/4"}, "shard='5/4'"),
        ({"shard": "1of4"}, "shard='1of4'"),
        ({"workers": 0}, "workers=0"),
        ({"num_gpus": 1}, "give on='ray'"),
        ({"on": "slurm"}, "on='slurm'"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_wrong_ways_to_run_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Running(**given)


def test_lists_are_read_with_commas_or_as_sequences():
    call = SweepCall(eps="0.1, 0.01,0.1", words="1,2", norm="l1,inf")
    assert call.radii == (0.01, 0.1)
    assert call.counts == (1, 2)
    assert call.norms == (1.0, float("inf"))
    assert SweepCall(eps=[0.2, 0.1]).radii == (0.1, 0.2)
    assert SweepCall(eps=0.2).radii == (0.2,)
    assert SweepCall().radii == ()
    assert SweepCall(eps="0.1").radii[0] >= 0.1
    for wrong, message in (
        ({"eps": "0.1,x"}, "expected a number"),
        ({"eps": "nan"}, "finite radius"),
        ({"eps": [-1]}, "finite radius"),
        ({"words": "0"}, "words=0"),
        ({"words": "1.5"}, "words='1.5'"),
        ({"norm": "0.5"}, "norm='0.5'"),
    ):
        with pytest.raises(InputError, match=message):
            SweepCall(**wrong)
