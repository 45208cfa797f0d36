"""`certiformer sweep` as a user calls it: what is written, what is refused, and that nothing changes a bit."""

from __future__ import annotations

import csv
import json
import re
import resource
import shutil
import subprocess

import pytest

import certiformer as cf
from calling import run
from certiformer.data import load_data
from certiformer.errors import InputError
from certiformer.numbers import as_proved
from certiformer.sweep import worker
from certiformer.sweep.result import across, read_result
from certiformer.sweep.store import Store
from certiformer.sweep.written import write
from sweeping import sentences

RADII = "0.05,0.2,0.5,1"
QUICKLY = {"attack_steps": 5, "restarts": 1, "method": "backward-forward"}
FLAGS = [word for name, value in QUICKLY.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def ask(capsys, model, data):
    def call(*more: object) -> tuple[int, str, str]:
        return run(capsys, "sweep", "--model", model, "--data", data, *FLAGS, *more)

    return call


@pytest.fixture(scope="module")
def whole(model, data, tmp_path_factory):
    """The folder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    write(cf.sweep(str(model), load_data(data), eps=RADII, out=out, **QUICKLY), out)
    return out


def table(folder) -> bytes:
    return (folder / "table.csv").read_bytes()


def test_a_sweep_answers_and_the_same_command_does_nothing_twice(ask, whole, tmp_path, monkeypatch):
    code, out, err = ask("--eps", RADII, "--out", whole)
    assert code == 0
    assert "0.05" in out
    assert "1 sentences failed, such as number 28" in err
    rows = list(csv.DictReader((whole / "table.csv").open()))
    assert len(rows) == 30
    assert {row["status"] for row in rows} == {"decided", "wrong", "error"}
    reasons = [row["reason"] for row in rows if row["status"] == "error"]
    assert reasons == ["the text has 40 tokens, this model takes at most 10: shorten the text"]
    before = Store(whole).path.read_bytes()
    monkeypatch.setattr(worker, "decide", lambda *a: pytest.fail("was asked again"))
    assert ask("--eps", RADII, "--out", whole)[0] == 0
    assert Store(whole).path.read_bytes() == before
    figures = json.loads((whole / "figures.json").read_text())
    assert (figures["done"], figures["total"]) == (30, 30)
    assert sum(p["count"] for p in figures["cases"][0]["by_class"]) == 30
    assert sum(p["count"] for p in figures["cases"][0]["by_length"]) == 30
    for name in ("curves.csv", "table.parquet", "curves.png", "index.html"):
        assert (whole / name).stat().st_size > 100


def test_verdicts_are_those_of_certify(whole, model):
    """Every verdict of the sweep against the one sentence, one radius question."""
    certifier = cf.Certifier(str(model))
    checked = {"certified": 0, "refuted": 0}
    for row in read_result(whole).rows()[:12]:
        if row["status"] != "decided":
            continue
        for eps in (0.05, 0.5):
            said = row[f"eps {eps}"]
            if said in checked:
                checked[said] += 1
                assert certifier.certify(row["text"], eps=eps).status == said
    assert min(checked.values()) > 0


def test_no_radius_is_proved_that_an_attack_reaches_and_more_is_proved_at_less(whole):
    for row in read_result(whole).table:
        if row["status"] == "decided" and row["attacked"] is not None:
            assert row["certified"] is None or row["certified"] < row["attacked"]
    curve = read_result(whole).figures().whole.curve
    assert [p.certified for p in curve] == sorted((p.certified for p in curve), reverse=True)
    assert all(p.least <= p.most and p.count == 30 for p in curve)


@pytest.mark.parametrize("parts", [3])
def test_shards_in_any_order_make_the_same_table(ask, whole, tmp_path, parts):
    for k in reversed(range(parts)):
        code, _, err = ask("--eps", RADII, "--out", tmp_path, "--shard", f"{k + 1}/{parts}", "--quiet")
        assert code == 0
        assert ("of other parts" in err) == (k > 0)
    assert table(tmp_path) == table(whole)


def test_radii_are_searched_where_none_are_given(ask, model, tmp_path):
    assert ask("--out", tmp_path, "--sentences", 6, "--max-length", 5, "--no-attack")[0] == 0
    rows = [row for row in read_result(tmp_path).table if row["status"] == "decided"]
    assert rows
    assert all(row["certified"] > 0 and row["attacked"] is None for row in rows)
    alone = cf.radius(str(model), rows[0]["text"], method="backward-forward", threads=1, max_memory=1 << 30)
    assert rows[0]["certified"] == as_proved(alone.smallest[1])
    assert len(read_result(tmp_path).figures().whole.curve) == 13


def test_another_question_in_the_folder_is_refused_in_a_line(ask, whole):
    code, _, err = ask("--eps", "0.3", "--out", whole)
    assert code == 2
    assert re.fullmatch(r"error: .* holds another sweep, with eps \[.*\]: take another folder\n", err)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--eps", "0.1"], "no folder was given"),
        (["--eps", "0.1,x", "--out", "{}"], "eps: 'x': expected a number"),
        (["--shard", "4/3", "--out", "{}"], "shard='4/3'"),
        (["--models", "nowhere*", "--out", "{}"], "no folder is called like that"),
        (["nowhere", "--out", "{}"], "no model 'nowhere'"),
        (["--split", "dev", "--out", "{}"], "has no dev part"),
        (["--watch", "--out", "{}/none"], "no sweep was begun there"),
        (["--compare", "a", "b", "--eps", "0.1", "--out", "{}"], "neither a folder of a sweep nor a model of this one"),
    ],
)
def test_wrong_calls_are_one_line_and_code_2(ask, tmp_path, more, message):
    code, _, err = ask(*(word.format(tmp_path) for word in more))
    assert code == 2
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())  # and nothing is begun


def test_a_full_disk_ends_in_a_line_and_the_same_command_goes_on(ask, whole, tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        code, _, err = ask("--eps", RADII, "--out", tmp_path, "--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert code == 4
    assert re.search(r"error: .*rows.jsonl: File too large; \d+ finished are kept, the same command goes on", err)
    kept = len(Store(tmp_path).keys)
    assert 0 < kept < 30
    assert ask("--eps", RADII, "--out", tmp_path, "--quiet")[0] == 0
    assert table(tmp_path) == table(whole)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of three pages, where this user may make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount on this machine")
def test_a_disk_that_is_really_full_and_then_larger(ask, whole, small_disk):
    code, _, err = ask("--eps", RADII, "--out", small_disk, "--quiet")
    assert code == 4
    assert re.search(r"error: .*: No space left on device; \d+ finished are kept, the same command goes on", err)
    assert 0 < len(Store(small_disk).keys) < 30
    assert Store(small_disk).damaged == 0
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    assert ask("--eps", RADII, "--out", small_disk, "--quiet")[0] == 0
    assert table(small_disk) == table(whole)


def test_two_models_side_by_side_and_a_page_without_markup_of_others(capsys, model, other, tmp_path):
    data = tmp_path / "data.tsv"
    rows = [*sentences(6), ("good <script>alert(1)</script>", 1)]
    data.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for text, label in rows))
    call = ["sweep", "--models", model, other, "--data", data, "--eps", "0.1,0.5", "--words", "1,2", "--norm", "2,inf"]
    code, out, _ = run(
        capsys, *call, "--out", tmp_path / "out", "--compare", "tiny", "other", "--method", "ibp", "--restarts", 1
    )
    assert code == 0
    assert "only other" in out
    result = read_result(tmp_path / "out")
    assert [str(case) for case in result.cases][:4] == [
        "tiny, l2",
        "tiny, l2, 2 words",
        "tiny, linf",
        "tiny, linf, 2 words",
    ]
    assert len(result.table) == 8 * 7
    pair = result.comparison("tiny", "other").pairs[0]
    assert pair.both + pair.first + pair.second + pair.neither == 7
    page = (tmp_path / "out/index.html").read_text()
    assert "<script>alert" not in page
    assert "Side by side" in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    code, out, _ = run(capsys, "sweep", "--compare", tmp_path / "out", tmp_path / "out")
    assert code == 0
    assert "7 sentences, l2, certified" in out


def test_only_what_asks_the_same_is_put_side_by_side(model, tmp_path):
    asked = {"inf": "inf,1", "one": "2,1", "two": "2"}
    for name, norms in asked.items():
        cf.sweep(model, sentences(3), eps=[0.1], norm=norms, method="ibp", attack=False, out=tmp_path / name)
    found = across(tmp_path / "inf", tmp_path / "one")
    assert found.asked == "l1"  # the first norm that both have, not the first of each
    assert found.pairs[0].first == found.pairs[0].second == 0
    with pytest.raises(InputError, match="no norm and number of words in common: linf; l1 and l2"):
        across(tmp_path / "inf", tmp_path / "two")


def test_watch_says_how_far_it_is_and_ends_when_it_is_done(ask, whole):
    code, out, _ = ask("--watch", "--out", whole)
    assert code == 0
    assert out.startswith("30 of 30 sentences")
    assert "1 failed" in out


def test_from_python_a_result_is_a_table_and_a_plot(model):
    result = cf.sweep([str(model)], sentences(5), eps=[0.1], method="ibp", quick=False)
    frame = result.to_pandas()
    assert len(frame) == 5
    assert "eps 0.1" in frame.columns
    assert result.complete
    assert "5 of 5 sentences" in repr(result)
    assert result.plot().get_ylim() == (0, 1)
    assert "<li>" in result._repr_html_()
