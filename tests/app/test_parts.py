"""The parts of the app, each on its own: options, the line, a question answered a few words at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import certiformer as cf
from certiformer.app import pool
from certiformer.app.answer import Answer, Limits
from certiformer.app.asking import Asked
from certiformer.app.line import Busy, Job, Line
from certiformer.app.server import Guard
from certiformer.app.serving import Serving
from certiformer.cli import main
from certiformer.errors import InputError
from certiformer.options import Options
from certiformer.report import from_json

IBP = Options(method="ibp", tolerance=0.02)
LIMITS = Limits(seconds=60.0, longest=12, most_sets=100)


@pytest.fixture(scope="module")
def certifier() -> cf.Certifier:
    return cf.Certifier("sst-1", IBP)


def given(certifier: cf.Certifier, asked: Asked, *, limits: Limits = LIMITS, stop_after: int = 10**6) -> list[Any]:
    told: list[Any] = []
    stopped = lambda: sum(m["kind"] == "sentence" and m["done"] > 0 for m in told) >= stop_after  # noqa: E731
    answer = Answer(certifier, asked, limits, lambda kind, **more: told.append({"kind": kind, **more}), stopped)
    answer.give(IBP)
    return told


@pytest.mark.parametrize("words", [1, 2])
def test_the_parts_make_the_whole(certifier: cf.Certifier, words: int) -> None:
    """Every set once, in order; every number proved for all of them together."""
    told = given(certifier, Asked("a thin plot but a wonderful cast", "sst-1", words=words))
    shown = [m for m in told if m["kind"] == "sentence"]
    assert len(shown) > 2
    assert [m["done"] for m in shown] == sorted({m["done"] for m in shown})
    document = from_json(told[-1]["files"]["report.json"].decode())
    assert document.complete
    assert document.settings["words"] == words
    (run,) = document.results[0].runs
    whole = certifier.radius("a thin plot but a wonderful cast", words=words)
    assert tuple(place.positions for place in run.places) == whole.positions
    proved = [place.certified for place in run.places]
    assert proved == pytest.approx(whole.radii, rel=0.05)
    bounds = certifier.bounds("a thin plot but a wonderful cast", words=words, eps=proved)
    assert all(bounds.certified)


def test_what_is_stopped_is_what_was_found_before(certifier: cf.Certifier) -> None:
    told = given(certifier, Asked("a thin plot but a wonderful cast", "sst-1"), stop_after=1)
    assert told[-1]["state"] == "stopped"
    document = from_json(told[-1]["files"]["report.json"].decode())
    assert not document.complete
    assert len(document.results[0].runs[0].places) == 2


def test_time_that_is_up_ends_it(certifier: cf.Certifier) -> None:
    told = given(certifier, Asked("a thin plot", "sst-1"), limits=Limits(1e-9, 12, 100))
    assert told[-1]["state"] == "stopped"
    assert "out of time" in told[-1]["message"]
    assert not from_json(told[-1]["files"]["report.json"].decode()).complete


def test_too_many_sets_are_refused(certifier: cf.Certifier) -> None:
    with pytest.raises(InputError, match="21 sets of words, at most 20 here"):
        given(certifier, Asked("a thin plot but a wonderful cast", "sst-1", words=2), limits=Limits(60, 12, 20))


def test_visitors_take_turns() -> None:
    async def run() -> list[str]:
        line = Line(9)
        for visitor in ("a", "a", "a", "b", "c", "b"):
            line.put(Job(Asked("x", "m"), visitor))
        ahead = [job.messages[-1]["ahead"] for job in line.order()]
        assert ahead == list(range(6))
        return [(await line.next()).visitor for _ in range(6)]

    assert asyncio.run(run()) == ["a", "b", "c", "a", "b", "a"]


def test_a_line_is_full_and_empties() -> None:
    async def run() -> None:
        line = Line(1)
        first = Job(Asked("x", "m"), "a")
        line.put(first)
        with pytest.raises(Busy):
            line.put(Job(Asked("x", "m"), "b"))
        line.drop(first)
        assert first.messages[-1]["state"] == "stopped"
        line.put(Job(Asked("x", "m"), "b"))
        assert (await line.next()).visitor == "b"

    asyncio.run(run())


def test_nothing_follows_the_end() -> None:
    async def run() -> list[str]:
        job = Job(Asked("x", "m"), "a")
        job.tell("end", state="done", files={"report.json": "e30="})
        job.tell("sentence", done=3)
        return [message["kind"] async for _, message in job.follow() if message is not None]

    assert asyncio.run(run()) == ["end"]


DEAF = """
import json, sys, time
print(json.dumps({"kind": "ready", "models": []}), flush=True)
sys.stdin.readline()
asked = json.loads(sys.stdin.readline())
print(json.dumps({"kind": "sentence", "done": 1}), flush=True)
time.sleep(0 if asked["text"] == "die" else 60)
"""


@pytest.mark.parametrize(
    ("text", "state", "message"),
    [
        ("stop me", "stopped", "stopped"),
        ("go on", "stopped", "out of time"),
        ("die", "failed", "process that answered ended"),
    ],
)
def test_a_process_that_does_not_stop_is_ended_and_one_that_dies_is_told(
    monkeypatch: pytest.MonkeyPatch, text: str, state: str, message: str
) -> None:
    """What it had told before is kept."""
    monkeypatch.setattr(pool, "COMMAND", (sys.executable, "-c", DEAF))
    monkeypatch.setattr(pool, "GRACE", 0.1)

    async def run() -> tuple[list[dict[str, Any]], bool]:
        process, job = pool.Process({}, seconds=20.0 if text == "stop me" else 1.0), Job(Asked(text, "m"), "a")
        await process.start()
        answering = asyncio.ensure_future(process.answer(job))
        async for _, told in job.follow():
            if told is not None and told["kind"] == "sentence" and text == "stop me":
                job.stop()
        await answering
        return job.messages, process.alive

    told, alive = asyncio.run(run())
    assert [m["kind"] for m in told] == ["sentence", "end"]
    assert told[-1]["state"] == state
    assert message in told[-1]["message"]
    assert not alive


def test_old_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_BYTES", 5)

    async def run() -> list[bool]:
        held = pool.Pool(Serving(queue=9), IBP)
        jobs = [held.ask(Asked("x", "sst-1"), "a") for _ in range(3)]
        for job in jobs:
            job.tell("end", state="done", files={"report.json": "e30="})  # two bytes each
        held.ask(Asked("x", "sst-1"), "a")
        found = []
        for job in jobs:
            try:
                found.append(held.job(job.name) is job)
            except InputError:
                found.append(False)
        return found

    assert asyncio.run(run()) == [False, True, True]


def test_a_site_may_be_allowed_to_show_the_page() -> None:
    policy = Guard(None, Serving(frame=("https://a.example",))).headers["Content-Security-Policy"]  # type: ignore[arg-type]
    assert policy.endswith("frame-ancestors https://a.example")


def test_folders_are_known_by_their_last_part(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    assert Serving(model=("sst-1", str(tmp_path / "own"))).shelf() == {"sst-1": "sst-1", "own": str(tmp_path / "own")}
    assert list(Serving().shelf()) == ["sst-2", "sst-1", "sst-3", "sst-2-standard"]
    with pytest.raises(InputError, match="already"):
        Serving(model=("sst-1", "sst-1")).shelf()


def test_only_this_machine_may_ask_unless_it_is_said() -> None:
    assert Serving().host == "127.0.0.1"
    assert Serving().hosts == {"127.0.0.1", "localhost", "::1"}
    assert Serving(host="0.0.0.0").hosts is None
    assert "a.example" in (Serving(host="0.0.0.0", allow_host=("A.example",)).hosts or ())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["--model", "no/such/folder"], "no model 'no/such/folder'"),
        (["--port", "99999"], "port=99999"),
        (["--workers", "0"], "workers=0"),
        (["--seconds", "0"], "seconds=0.0"),
        (["--frame", "https://a.example; script-src *"], "frame="),
        (["--host", "256.0.0.1"], "--host 256.0.0.1"),
    ],
)
def test_a_wrong_call_is_one_line(call: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["app", "--no-browser", *call])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_a_folder_that_does_not_open_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        main(["app", "--no-browser", "--port", "0", "--model", str(tmp_path)])
    assert stopped.value.code == 2
    assert "config.json" in capsys.readouterr().err


def test_the_page_of_the_app_has_every_option_and_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "app.md").read_text(encoding="utf-8")
    for f in fields(Serving):
        flag = "--no-browser" if f.name == "browser" else f"--{f.name.replace('_', '-')}"
        (row,) = [line for line in page.splitlines() if line.startswith("|") and f"`{flag}`" in line.split("|")[1]]
        if isinstance(f.default, (int, float, str)) and f.name != "browser":
            assert (f"{f.default:g}" if isinstance(f.default, float) else str(f.default)) in row, flag


def test_the_server_loads_no_torch() -> None:
    """It answers at once, and a process that is killed takes nothing with it."""
    code = "import sys, certiformer.app.server, certiformer.cli.commands; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
