"""A worker: whatever happens to a sentence is a row, and no row depends on what was done before."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import certiformer as cf
from certiformer.models import load
from certiformer.options import Options
from certiformer.sweep import decide as deciding
from certiformer.sweep import worker
from certiformer.sweep.decide import Asked, Decided, stages
from certiformer.sweep.figures import verdict
from certiformer.sweep.options import SweepQuestion
from certiformer.sweep.worker import Batch, Case, Item, Job, Worker

TEXTS = ["good film", "bad film", "the plot", "very fine"]


@pytest.fixture(scope="module")
def job(model) -> Job:
    asked = Asked(
        2.0, 1, SweepQuestion(eps="0.1,0.5", attack_steps=2, restarts=1), Options(threads=1, max_memory=1 << 26)
    )
    return Job((load(model),), (Case(0, asked),))


def batch(job: Job, texts: list[str], labels: list[int] | None = None) -> Batch:
    labels = labels or [p.label for p in job.models[0].predict(texts)]
    items = tuple(Item(f"0:{i}", i, text, label) for i, (text, label) in enumerate(zip(texts, labels, strict=True)))
    return Batch(0, items, 2, 1.0)


def rows(found) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "at")} for _, row in found]


def test_out_of_memory_together_is_tried_in_smaller_batches_and_said(job, monkeypatch):
    whole, sizes = worker.decide, []

    def little(workspace, prepared, *others):
        sizes.append(len(prepared))
        if len(prepared) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(workspace, prepared, *others)

    alone = rows(Worker(job)([batch(job, TEXTS)]))
    monkeypatch.setattr(worker, "decide", little)
    found = rows(Worker(job)([batch(job, TEXTS)]))
    assert sizes == [4, 2, 1, 1, 2, 1, 1]
    assert {row["note"] for row in found} == {worker.SMALLER}
    assert [{**row, "note": None} for row in found] == [{**row, "note": None} for row in alone]


def test_one_sentence_that_does_not_fit_on_a_gpu_goes_to_the_cpu_and_that_is_said(job, monkeypatch):
    """With no GPU at hand: what would run there is told that it is full."""
    whole, read, devices = worker.decide, worker.prepare, []

    def little(workspace, prepared, texts, asked):
        devices.append(asked.options.device)
        if asked.options.device != "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(workspace, prepared, texts, asked)

    monkeypatch.setattr(worker, "decide", little)
    monkeypatch.setattr(worker, "prepare", lambda *given, device, **more: read(*given, device="cpu", **more))
    asked = job.cases[0].asked
    cuda = replace(job, cases=(Case(0, replace(asked, options=replace(asked.options, device="cuda"))),))
    found = rows(Worker(cuda)([batch(job, TEXTS[:2])]))
    assert devices == ["cuda", "cuda", "cpu", "cuda", "cpu"]
    assert [(row["status"], row["note"]) for row in found] == [("decided", worker.ON_CPU)] * 2


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: you tried 9 bytes")])
def test_an_instance_that_does_not_fit_is_a_row_and_the_others_go_on(job, monkeypatch, error):
    whole = worker.decide

    def little(workspace, prepared, texts, *others):
        if "bad film" in texts:
            raise error
        return whole(workspace, prepared, texts, *others)

    monkeypatch.setattr(worker, "decide", little)
    found = rows(Worker(job)([batch(job, TEXTS)]))
    assert [row["status"] for row in found] == ["decided", "error", "decided", "decided"]
    assert found[1]["reason"] == worker.NO_MEMORY


def test_a_fault_of_ours_is_a_row_too(job, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(worker, "decide", fails)
    (row,) = rows(Worker(job)([batch(job, TEXTS[:1])]))
    assert (row["status"], row["reason"]) == ("error", "unexpected ZeroDivisionError: division by zero")
    assert "certified" not in row


def test_a_proof_that_an_attack_excludes_is_an_error_and_no_certificate(job, monkeypatch):
    def wrong(workspace, prepared, texts, asked):
        return [Decided(q, [(1,)], [0.5], [0.4]) for q in prepared]

    monkeypatch.setattr(worker, "decide", wrong)
    (row,) = rows(Worker(job)([batch(job, TEXTS[:1])]))
    assert row["status"] == "error"
    assert "contradict each other" in row["reason"]
    assert row.get("certified") is None


def test_a_sentence_that_is_wrong_is_not_bounded(job, monkeypatch):
    monkeypatch.setattr(worker, "decide", lambda *_: pytest.fail("was bounded"))
    labels = [1 - p.label for p in job.models[0].predict(TEXTS)]
    assert {row["status"] for row in rows(Worker(job)([batch(job, TEXTS, labels)]))} == {"wrong"}


def test_what_is_refuted_is_not_bounded_and_what_is_proved_not_asked_again(job, monkeypatch):
    asked: list[tuple[str, str, int]] = []
    proved = deciding._proved

    def counted(instances, at, p, options):
        asked.append((options.method, options.dtype, len(instances)))
        return proved(instances, at, p, options)

    monkeypatch.setattr(deciding, "_proved", counted)
    far = replace(job.cases[0].asked, question=SweepQuestion(eps="50", attack_steps=20, restarts=1))
    (row,) = rows(Worker(Job(job.models, (Case(0, far),)))([batch(job, TEXTS[:1])]))
    assert row["attacked"] < 50
    assert asked == []
    near = replace(job.cases[0].asked, question=SweepQuestion(eps="0.001,0.0001", attack=False))
    (row,) = rows(Worker(Job(job.models, (Case(0, near),)))([batch(job, TEXTS[:1])]))
    assert row["certified"] == 0.001
    assert asked == [("backward-forward", "float64", 2)]  # the larger radius, of both words, and nothing after it


def test_what_the_cheap_method_leaves_open_is_asked_again(job, monkeypatch):
    seen = []

    def never_quick(instances, at, p, options):
        seen.append((options.method, options.dtype))
        return [options.method == "auto"] * len(at)

    monkeypatch.setattr(deciding, "_proved", never_quick)
    bundled = replace(job, models=(load("sst-1"),))
    (row,) = rows(Worker(bundled)([batch(bundled, ["a great film"])]))
    assert row["certified"] == 0.5
    assert dict.fromkeys(seen) == dict.fromkeys([("backward-forward", "float64"), ("auto", "float64")])


def test_no_precision_but_the_one_asked_for_proves_anything(job):
    assert [o.dtype for o in stages(job.cases[0].asked)] == ["float64", "float64"]


def test_no_bit_depends_on_what_was_asked_before():
    certifier = cf.Certifier("sst-1", method="backward-forward", dtype="float32", max_memory=1 << 26, threads=1)
    text = "a gripping drama that never quite finds its voice"

    def margins(words: str) -> list[float]:
        return certifier.bounds(words, eps=0.1).lower.flatten().tolist()

    first = margins(text)
    margins("an uneven but likeable film about two old friends")
    certifier.workspace.forget()
    assert margins(text) == first


def test_a_searched_radius_is_no_certificate_at_a_number_that_is_written_a_little_larger(monkeypatch):
    """The float 0.3 is less than 0.3: what is proved up to it says nothing of 0.3."""
    one = Decided(None, [(0,)], [None], [None])  # type: ignore[arg-type]
    monkeypatch.setattr(deciding, "search_radii", lambda *rest: [SimpleNamespace(radii=(0.3,))])
    deciding._searched(None, [one], ["text"], SimpleNamespace(plain=None, options=None))
    row = {"status": "decided", "certified": one.certified[0], "attacked": None}
    assert [verdict(row, eps) for eps in (0.29, 0.3)] == ["certified", "unknown"]
