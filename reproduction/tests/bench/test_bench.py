"""The benchmark command: what it writes and compares. Nothing here looks at how long anything took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certiformer.errors import InputError
from certiformer_reproduction.bench import cases
from certiformer_reproduction.bench.cases import SUITES, suite
from certiformer_reproduction.bench.machine import peak_memory
from certiformer_reproduction.bench.run import Settings, run
from certiformer_reproduction.bench.tables import compared, markdown
from certiformer_reproduction.command_line import main


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("bench") / "deep" / "a.json"
    said: list[str] = []
    run(Settings("cpu-table", only="N=1 d=64", repeats=1, tolerance=0.5, out=out), say=said.append)
    return out, "\n".join(said)


def test_a_run_says_and_writes_what_it_measured(written):
    out, said = written
    document = json.loads(out.read_text())
    (row,) = document["rows"]
    assert row["key"] == "cpu-table: backward-forward: N=1 d=64"
    assert row["model"] == "sst-1"
    assert row["sets"] == 6
    assert row["evaluations"] >= 1
    assert row["mean"] > 0
    assert 0 < row["floor"] < row["seconds"]
    assert document["machine"]["torch"]
    assert document["settings"]["dtype"] == "float64"
    assert "backward-forward: N=1 d=64" in said
    table = markdown(document)
    assert "| goal | 0.785 s |" in table
    assert "published code" in table.lower()


def test_two_runs_are_compared(written):
    before = json.loads(written[0].read_text())
    after = json.loads(written[0].read_text())
    after["rows"][0]["seconds"] /= 4
    after["machine"]["threads"] = 99
    told = compared(before, after)
    assert "4.00x" in told
    assert "0.0e+00" in told
    assert "99 now" in told


def test_the_command_line(written, capsys, tmp_path):
    assert main(["performance", str(written[0])]) == 0
    assert "| goal |" in capsys.readouterr().out
    assert main(["bench", "scaling", "--only", "nothing of this name"]) == 2
    assert "no case with" in capsys.readouterr().err
    assert main(["bench", "scaling", "--compare", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_no_case_starts_after_the_time_limit(tmp_path):
    document = run(Settings("scaling", only="tokens=8", time_limit=-1.0), say=lambda text: None)
    assert document["rows"] == []
    assert len(document["left_out"]) == 2


def test_every_case_has_a_name_of_its_own_and_a_place_on_its_axis():
    found = suite("all")
    assert len({case.key for case in found}) == len(found)
    for case in found:
        assert case.suite in SUITES
        assert (case.eps is not None) == (case.suite == "scaling")
    for text, tokens in ((cases.LONG, 18), (cases.SHORT, 8)):
        assert len(text.split()) + 2 == tokens


def test_a_suite_that_is_not_there():
    with pytest.raises(InputError, match="expected one of gpu-table"):
        run(Settings("tables"))


def test_peak_memory_sees_what_was_held_and_freed():
    import torch

    with peak_memory("cpu") as peak:
        torch.ones(30_000_000).sum()
    if peak.bytes is None:
        pytest.skip("no high-water mark on this system")
    assert 100_000_000 < peak.bytes < 400_000_000


def test_a_page_is_filled_from_the_files_it_names(written, tmp_path):
    (tmp_path / "a.json").write_text(written[0].read_text())
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- bench: a.json cpu-table -->\nold\n<!-- end -->\n"
        "between\n<!-- bench: b.json -->\n<!-- end -->\nafter\n"
    )
    for _ in range(2):
        assert main(["performance", "--page", str(page)]) == 0
    told = page.read_text()
    assert told.count("| goal | 0.785 s |") == 1
    assert "old" not in told
    assert "Not measured yet." in told
    assert told.startswith("before\n<!-- bench: a.json cpu-table -->\n")
    assert told.endswith("<!-- end -->\nafter\n")
