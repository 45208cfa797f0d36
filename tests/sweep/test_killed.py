"""Kills: of a worker, of the driver, of Ray. The same command goes on, and the table is the same to the last bit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from calling import run
from certiformer.sweep.processes import Processes
from certiformer.sweep.store import Store
from sweeping import ASKED, Mortals, alive, command, lines, parent, processes, sentences, told, units, wait_for


def test_a_process_that_dies_is_replaced_and_only_what_kills_every_one_is_lost(tmp_path):
    executor = Processes(2, retries=1)
    found = told(executor.results(iter(units("a", "die1", "b", "die9", "c")), Mortals(tmp_path)))
    assert found.pop("die9") == "the process that worked on it died 2 times, such as for lack of memory"
    assert found == {"a": 0, "die1": 1, "b": 0, "c": 0}


def test_units_wait_where_they_come_from(tmp_path):
    taken = []

    def source():
        for unit in units(*"abcdef"):
            taken.append(unit.content)
            yield unit

    results = Processes(2).results(source(), Mortals(tmp_path))
    next(results)
    assert len(taken) == 2  # no more than there are workers
    results.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("many") / "test.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for text, label in sentences(60)))
    return path


def workers_of(pid: int) -> list[int]:
    """The workers of a driver, not what multiprocessing keeps beside them."""
    return [p for p in processes("spawn_main") if parent(p) == pid]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc, which Linux has")
def test_kill_a_worker_then_the_driver_and_go_on(capsys, model, many, tmp_path):
    out, once = tmp_path / "killed", tmp_path / "once"
    driver = command(model, many, out, "--workers", 2)
    wait_for(lambda: lines(out) >= 3)
    workers = workers_of(driver.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    wait_for(lambda: len(set(workers_of(driver.pid)) - {workers[0]}) == 2)  # another took its place
    before = lines(out)
    wait_for(lambda: lines(out) > before or driver.poll() is not None)
    workers = workers_of(driver.pid)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert 3 <= lines(out) < 60
    wait_for(lambda: not any(alive(p) for p in workers))  # nobody works for a driver that is gone
    with (out / "rows.jsonl").open("ab") as file:
        file.write(b'{"key": "0:5", "certif')  # as if the kill had fallen into a line
    kept = len(Store(out).keys)
    assert run(capsys, "sweep", "--model", model, "--data", many, "--out", out, *ASKED)[0] == 0
    assert len(Store(out).keys) == 60 > kept
    assert run(capsys, "sweep", "--model", model, "--data", many, "--out", once, *ASKED)[0] == 0
    for name in ("table.csv", "curves.csv", "figures.json", "index.html"):
        assert (out / name).read_bytes() == (once / name).read_bytes()
