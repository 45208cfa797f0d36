"""Many sentences on the command line: together, stopped, resumed; the results are those of each alone."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from calling import run, tiny_folder
from certiformer import report as reporting
from certiformer.cli import running
from certiformer.cli.progress import Bar
from certiformer.cli.reading import Item
from certiformer.numbers import down, up
from certiformer.report import Document, from_json

WORDS = ("a", "good", "bad", "film", "plot", "dull")
TEXTS = ["a good film", "bad film", "a bad plot", "dull", "good plot", "a dull film"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS)


def radii(document: Document) -> list[tuple[str, list[float | None]]]:
    return [(s.text, [p.certified for r in s.runs for p in r.places]) for s in document.results]


@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.slow), "backward-forward"])
def test_together_is_as_alone(folder, capsys, tmp_path, method):
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    call = ["--model", folder, "--json", "--no-attack", "--device", "cpu", "--norm", "2", "--method", method]
    code, out, err = run(capsys, "radius", "--file", tmp_path / "lines.txt", *call)
    together = from_json(out)
    assert code == 0
    assert "a second" in err
    assert [s.text for s in together.results] == TEXTS
    for text, found in radii(together):
        alone = from_json(run(capsys, "radius", text, *call)[1])
        assert found == pytest.approx(radii(alone)[0][1], rel=2e-3)


def test_positions_may_differ_from_sentence_to_sentence(folder, capsys):
    call = ["--model", folder, "--json", "--no-attack", "--method", "ibp", "--positions", "film"]
    code, out, err = run(capsys, "radius", "a good film", "film", "a film a", "a good plot", *call)
    document = from_json(out)
    assert code == 2
    assert [[p.positions for p in s.runs[0].places] for s in document.results] == [[(3,)], [(1,)], [(2,)]]
    assert "no word 'film'" in err


def test_groups_are_bounded_and_cover_everything_once(monkeypatch):
    chance = random.Random(0)
    items = [Item("x" * chance.randrange(1, 6)) for _ in range(100)]
    monkeypatch.setattr(running, "WINDOW", 40)
    monkeypatch.setattr(running, "MOST", 12)
    together = running.Together(key=lambda text: (len(text), len(text)), many=lambda texts, advance: [])
    groups = list(
        running.Job(SimpleNamespace(model=SimpleNamespace(hashes=dict)), items, together, "radius", {})._groups(
            range(100), Bar()
        )
    )
    assert sorted(k for group in groups for k in group) == list(range(100))
    for group in groups:
        assert len({len(items[k].text) for k in group}) == 1
        assert sum(len(items[k].text) for k in group) <= 12
        assert max(group) - min(group) < 40


def test_one_that_spoils_its_group_fails_alone(folder, capsys, monkeypatch):
    from certiformer.errors import InputError

    real = reporting.measure_many

    def measure_many(certifier, inputs, *asked, **options):
        if "a bad plot" in inputs:
            raise InputError("not this one")
        return real(certifier, inputs, *asked, **options)

    monkeypatch.setattr(reporting, "measure_many", measure_many)
    code, out, err = run(capsys, "radius", *TEXTS, "--model", folder, "--json", "--no-attack", "--method", "ibp")
    assert code == 2
    assert [s.text for s in from_json(out).results] == [t for t in TEXTS if t != "a bad plot"]
    assert err.splitlines()[0] == "error: sentence 3: not this one"


def test_a_stopped_run_goes_on_where_it_was(folder, capsys, tmp_path, monkeypatch):
    real, handled = reporting.measure_many, []
    out = tmp_path / "r.json"
    call = ["radius", *TEXTS, "--model", folder, "--no-attack", "--method", "ibp", "--quiet", "--out", out]

    def measure_many(certifier, inputs, *asked, **options):
        handled.append(list(inputs))
        if len(handled) == 2:
            raise KeyboardInterrupt
        return real(certifier, inputs, *asked, **options)

    monkeypatch.setattr(reporting, "measure_many", measure_many)
    assert run(capsys, *call)[0] == 130
    first = from_json(out.read_text())
    assert not first.complete
    assert [s.text for s in first.results] == ["a good film", "a bad plot", "a dull film"]
    assert run(capsys, *call, "--resume")[0] == 0
    assert handled[2:] == [["bad film", "good plot"], ["dull"]]
    whole = from_json(out.read_text())
    assert whole.complete
    assert [s.text for s in whole.results] == TEXTS
    finished = len(handled)
    code, shown, _ = run(capsys, *call, "--resume")  # everything is there: it is shown again
    assert (code, len(handled)) == (0, finished)
    assert [line.split("\t")[-1] for line in shown.splitlines()] == [t for t in TEXTS for _ in t.split()]
    code, _, err = run(capsys, *call, "--resume", "--norm", "inf")
    assert code == 2
    assert "was made with norms ['l2'] and not ['linf']" in err


def test_another_model_of_the_same_name_is_refused(folder, capsys, tmp_path):
    out, other = tmp_path / "r.json", tmp_path / "other" / folder.name
    shutil.copytree(folder, other)
    call = ["radius", "a good film", "--no-attack", "--method", "ibp", "--quiet", "--out", out]
    assert run(capsys, *call, "--model", folder)[0] == 0
    hashes = from_json(out.read_text()).hashes
    assert sorted(hashes) == ["structure", "vocabulary", "weights"]
    assert {len(digest) for digest in hashes.values()} == {64}
    assert run(capsys, *call, "--model", other, "--resume")[0] == 0  # the same weights elsewhere are the same model
    words = (other / "vocab.txt").read_text().splitlines()
    (other / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]) + "\n")
    code, _, err = run(capsys, *call, "--model", other, "--resume")
    assert (code, "vocabulary (SHA-256)" in err, "weights" in err) == (2, True, False)
    shutil.copy(folder / "vocab.txt", other / "vocab.txt")
    weights = load_file(other / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 0.001}, other / "model.safetensors")
    code, _, err = run(capsys, *call, "--model", other, "--resume")
    assert (code, "weights (SHA-256)" in err, "vocabulary" in err) == (2, True, False)
    assert hashes["weights"] in err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.pop("hashes"), "weights (SHA-256) None"),
        (lambda d: d["versions"].update(certiformer="0.0"), "certiformer '0.0' and not"),
        (lambda d: d["settings"].update(more=1), "more 1 and not None"),
        (lambda d: d.update(command="report"), "command 'report' and not 'radius'"),
        (lambda d: d.update(labels=["a", "b"]), "labels"),
    ],
)
def test_resuming_compares_everything(folder, capsys, tmp_path, change, told):
    out = tmp_path / "r.json"
    call = ["radius", "a good film", "--model", folder, "--no-attack", "--method", "ibp", "--quiet", "--out", out]
    assert run(capsys, *call)[0] == 0
    content = json.loads(out.read_text())
    change(content)
    out.write_text(json.dumps(content))
    code, _, err = run(capsys, *call, "--resume")
    assert code == 2
    assert told in err


def test_resume_needs_a_file(folder, capsys):
    code, _, err = run(capsys, "radius", "a", "--model", folder, "--resume")
    assert code == 2
    assert "--out FILE.json" in err


KILLED = """
import os, signal, sys
from certiformer import report
from certiformer.cli import main
real, calls = report.measure_many, []
def measure_many(*arguments, **options):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)
report.measure_many = measure_many
main(sys.argv[1:])
"""


def test_a_killed_run_loses_one_group(folder, capsys, tmp_path):
    out = tmp_path / "r.json"
    call = ["radius", *TEXTS, "--model", str(folder), "--no-attack", "--method", "ibp", "--quiet", "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", KILLED, *call], capture_output=True, env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    assert [s.text for s in from_json(out.read_text()).results] == ["a good film", "a bad plot", "a dull film"]
    assert run(capsys, *call, "--resume")[0] == 0
    assert [s.text for s in from_json(out.read_text()).results] == TEXTS


def test_quiet_rows_name_their_sentence(folder, capsys):
    call = ["--model", folder, "--method", "ibp", "--quiet", "--device", "cpu"]
    for command, more, place in (("radius", ["--no-attack"], 5), ("attack", [], 5), ("importance", [], 4)):
        code, out, _ = run(
            capsys, command, "bad film", "dull", *(call if command != "attack" else [*call[:2], *call[4:]]), *more
        )
        assert code == 0
        assert [line.split("\t")[place] for line in out.splitlines()] == ["bad film", "bad film", "dull"]
    code, out, _ = run(capsys, "certify", "bad film", "dull", *call, "--eps", "0")
    assert out.splitlines() == ["certified\tbad film", "certified\tdull"]


@pytest.mark.parametrize("columns", [20, 40, 60, 120])
def test_numbers_stay_whole_however_narrow_it_is(folder, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    call = ["a good film", "--model", folder, "--method", "ibp", "--device", "cpu"]
    quiet = run(capsys, "radius", *call, "--quiet")[1]
    shown = run(capsys, "radius", *call)[1]
    for line in quiet.splitlines():
        _, at, word, certified, attacked, _ = line.split("\t")
        (row,) = [row.split() for row in shown.splitlines() if row.split()[:2] == [word, at]]
        assert row[2:4] == [down(float(certified)), up(float(attacked))]
    assert ("░" in shown) == (columns >= 64)
    shown = run(capsys, "importance", *call)[1]
    for line in run(capsys, "importance", *call, "--quiet")[1].splitlines():
        rank, at, word, normalized, _ = line.split("\t")
        rows = [row.split() for row in shown.splitlines()]
        expected = [rank, down(float(normalized))]
        assert [word, *expected] in [row[:3] for row in rows] or [word, at, *expected] in [row[:4] for row in rows]


def test_control_characters_of_files_and_labels_are_shown_not_sent(folder, capsys, tmp_path):
    hostile = shutil.copytree(folder, tmp_path / "hostile")
    config = json.loads((hostile / "config.json").read_text())
    config["id2label"] = {"0": "bad\x1b[31m\u202e", "1": "good\x1b[32m\u202e"}
    (hostile / "config.json").write_text(json.dumps(config))
    (tmp_path / "lines.txt").write_text("a \x1b[31mgood\x9b film \u202e\n\x1b]0;title\x07\n", encoding="utf-8")
    call = ["--file", tmp_path / "lines.txt", "--model", hostile, "--device", "cpu"]
    few = ["--attack-steps", "5", "--restarts", "1"]
    for command, more in (
        ("radius", ["--method", "ibp", *few]),
        ("attack", few),
        ("importance", ["--method", "ibp"]),
        ("certify", ["--method", "ibp", "-e", "0.1"]),
    ):
        for way in ([], ["--quiet"], ["--json"]):
            _, out, err = run(capsys, command, *call, *more, *way)
            assert len(out) > 0
            assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(out + err), (command, way)


def test_tables_are_read_as_tables(folder, capsys, tmp_path):
    table = tmp_path / "x.csv"
    table.write_text('label,text\n1,"a good, bad film"\n0,dull\n')
    call = ["--file", table, "--model", folder, "--method", "ibp", "--no-attack", "--json"]
    code, out, _ = run(capsys, "radius", *call)
    assert code == 0
    assert [s.text for s in from_json(out).results] == ["a good, bad film", "dull"]
    code, _, err = run(capsys, "radius", *call, "--text-column", "headline")
    assert (code, "no such column" in err) == (2, True)
    code, _, err = run(capsys, "radius", "a film", *call[2:], "--text-column", "text")
    assert (code, "which was not given" in err) == (2, True)


def test_tables_from_stdin(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text,label\na film,1\n")))
    code, out, _ = run(capsys, "attack", "--file", "-", "--format", "csv", "--model", folder, "--json")
    assert code == 0
    assert [s.text for s in from_json(out).results] == ["a film"]


def test_threads_are_as_asked_and_put_back(folder, capsys, monkeypatch):
    before, seen, real = torch.get_num_threads(), [], torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda n: (seen.append(n), real(n)))
    assert (
        run(capsys, "radius", "a film", "--model", folder, "--threads", "2", "-q", "--method", "ibp", "--no-attack")[0]
        == 0
    )
    assert 2 in seen
    assert torch.get_num_threads() == before


def test_out_of_time_ends_with_what_is_proved(folder, capsys, tmp_path):
    out = tmp_path / "r.json"
    call = ["--model", folder, "--no-attack", "--method", "backward-forward", "--timeout", "1e-6"]
    code, _, err = run(capsys, "radius", *TEXTS, *call, "--out", out, "--quiet")
    document = from_json(out.read_text())
    assert code == 1
    assert err == f"out of time; sentences finished: 0, begun: {len(document.results)}\n"
    assert not any(r.complete for sentence in document.results for r in sentence.runs)
    assert (document.complete, document.stopped) == (False, "out of time")
    assert 0 < len(document.results) < len(TEXTS)
    assert document.settings["timeout"] == 1e-6
    code, told, _ = run(capsys, "certify", "a good film", *call, "--eps", "1e-9")
    assert code == 1
    assert "unknown" in told
    assert "out of time" in " ".join(told.split())
    code, _, err = run(capsys, "radius", "dull", *call[:-1], "0")
    assert (code, "timeout=0" in err) == (2, True)


def test_a_budget_in_seconds_is_spent_on_tighter_bounds_and_pieces(folder, capsys, tmp_path):
    out = tmp_path / "r.json"
    call = ["radius", "a good film", "--model", folder, "--no-attack", "--quiet", "--out", out]
    found = []
    for given in (["--method", "backward-forward"], ["--budget", "1000s", "--splits", "2"]):
        code, _, _ = run(capsys, *call, *given)
        document = from_json(out.read_text())
        assert (code, document.complete) == (0, True)
        found.append(document.results[0].runs[0])
    assert document.settings["budget"] == "1000s"
    assert (found[0].method, found[1].method) == ("backward-forward", "backward")
    before, after = ([place.certified for place in each.places] for each in found)
    assert all(a <= b for a, b in zip(before, after, strict=True))
    assert sum(before) < sum(after)
    for wrong in ("soon", "0s", "10"):
        code, _, err = run(capsys, *call, "--budget", wrong)
        assert (code, f"budget='{wrong}': expected one of fast" in err, "Traceback" in err) == (2, True, False)


def test_time_enough_changes_nothing(folder, capsys):
    call = [
        "radius",
        *TEXTS,
        "--model",
        folder,
        "--no-attack",
        "--method",
        "ibp",
        "--quiet",
        "--norm",
        "2",
        "--norm",
        "inf",
    ]
    assert run(capsys, *call) == run(capsys, *call, "--timeout", "1000", "--splits", "0")


def test_what_takes_long_is_told_and_goes_on(folder, capsys, monkeypatch):
    from certiformer.api import Certifier
    from certiformer.questions.estimate import Estimate

    found = Estimate(100.0, 3 << 30, 3, "backward", (("ibp", 2.0),))
    monkeypatch.setattr(Certifier, "estimate", lambda *asked, **more: found)
    call = ["radius", "a good film", "--model", folder, "--no-attack", "--method", "ibp"]
    code, out, err = run(capsys, *call, "--norm", "2", "--norm", "inf")
    assert code == 0
    assert "certified" in out
    assert err.startswith(
        "this should take about 3 min and 3,072 MiB (backward); cheaper: --method ibp 4.0 s; --timeout"
    )
    assert len(err.splitlines()) == 1
    assert run(capsys, *call, "--quiet")[2] == ""
    monkeypatch.setattr(Certifier, "estimate", lambda *asked, **more: dataclasses.replace(found, seconds=5.0))
    assert run(capsys, *call)[2] == ""
