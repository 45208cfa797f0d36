"""A real Ray on this machine: actors that die, and (slow) kills of an actor, of the driver and of Ray itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import certiformer as cf
from calling import run
from certiformer.errors import InputError
from certiformer.sweep import on_ray
from certiformer.sweep.store import Store
from sweeping import ASKED, Mortals, alive, command, lines, processes, sentences, told, units, wait_for

ray = pytest.importorskip("ray", reason="Ray is not installed")
ROWS = 240


@pytest.mark.slow
def test_an_actor_that_dies_is_restarted_and_only_what_kills_every_one_is_lost(tmp_path, monkeypatch):
    import sweeping

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.cloudpickle.register_pickle_by_value(sweeping)
    executor = on_ray.OnRay(2, retries=1)
    assert executor.workers == 2
    found = told(executor.results(iter(units("a", "die1", "b", "die9", "c")), Mortals(tmp_path)))
    assert found.pop("die9") == "the process that worked on it died 2 times, such as for lack of memory"
    assert found == {"a": 0, "die1": 1, "b": 0, "c": 0}
    assert not ray.is_initialized()  # it ended with the run


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(InputError, match="no cluster at RAY_ADDRESS=nowhere"):
        on_ray.OnRay(1)


@pytest.mark.parametrize("workers", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_without_enough_gpus_nothing_is_left_in_the_folder(model, tmp_path, monkeypatch, workers):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    asked = {"eps": 0.01, "split": "test", "out": tmp_path / "out"}
    with pytest.raises(InputError, match="num_gpus=64: there are"):
        cf.sweep(model, sentences(2), on="ray", num_gpus=64, workers=workers, **asked)
    assert not ray.is_initialized()
    assert cf.sweep(model, sentences(2), device="cpu", **asked).complete


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("many") / "test.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for text, label in sentences(ROWS)))
    return path


@pytest.mark.slow
def test_kill_an_actor_then_ray_then_the_driver_and_go_on(capsys, model, many, tmp_path):
    out, once = tmp_path / "killed", tmp_path / "once"
    ours = [*ASKED, "--on", "ray", "--workers", 2]

    def actors() -> list[int]:
        return processes("ray::_Actor")

    before = set(actors())
    driver = command(model, many, out, *ours)
    wait_for(lambda: lines(out) >= 3)
    first = set(actors()) - before
    assert len(first) == 2
    os.kill(min(first), signal.SIGKILL)
    wait_for(lambda: len(set(actors()) - before - {min(first)}) == 2)  # Ray restarts it
    seen = lines(out)
    wait_for(lambda: lines(out) > seen)
    (raylet,) = [p for p in processes("raylet/raylet") if os.getsid(p) == driver.pid]
    os.kill(raylet, signal.SIGKILL)
    driver.wait(timeout=180)
    assert driver.returncode != 0
    seen = lines(out)
    assert 3 < seen < ROWS

    driver = command(model, many, out, *ours)
    wait_for(lambda: lines(out) > seen + 3)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    second = set(actors()) - before
    wait_for(lambda: not any(alive(p) for p in second))  # nobody works for a driver that is gone
    assert len(Store(out).keys) < ROWS
    assert Store(out).damaged <= 1

    driver = command(model, many, out, *ours)
    _, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err.decode()
    assert len(Store(out).keys) == ROWS
    assert run(capsys, "sweep", "--model", model, "--data", many, "--out", once, *ASKED)[0] == 0
    for name in ("table.csv", "curves.csv", "figures.json", "index.html"):
        assert (out / name).read_bytes() == (once / name).read_bytes()
