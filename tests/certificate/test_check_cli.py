"""From a sentence to files to a table of what holds, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calling import run
from certiformer.cli import check
from conftest import REFERENCE

SMALL = REFERENCE / "sst_1_small"
TEXT = "the film is lame"
Capsys = pytest.CaptureFixture[str]


def test_radii_leave_a_file_for_each_word_and_check_asks_about_all(tmp_path: Path, capsys: Capsys) -> None:
    files, page, data = tmp_path / "all", tmp_path / "page.html", tmp_path / "it.json"
    asked = ("--model", SMALL, "--positions", "film,lame", "--no-attack", "--certificates", files)
    code, _, err = run(capsys, "radius", TEXT, *asked, "--out", data)
    assert (code, "written: 2 certificates" in err) == (0, True), err
    found = json.loads(data.read_text())["results"][0]["runs"][0]
    assert [Path(place["certificate"]).exists() for place in found["places"]] == [True, True]
    assert found["unwritten"] is None
    assert run(capsys, "report", "--from", data, "--out", page)[0] == 0
    for file in files.iterdir():
        assert f'<a href="all/{file.name.replace("+", "%2B")}">' in page.read_text()

    code, out, err = run(capsys, "check", files, "--model", SMALL)
    assert (code, "2 of 2 hold." in out) == (0, True), (out, err)
    changed = sorted(files.iterdir())[0]
    changed.write_bytes(changed.read_bytes()[:-40])
    code, out, _ = run(capsys, "check", files, "--model", SMALL, "--quiet")
    assert code != 0
    assert [line.split("\t")[1] for line in out.splitlines()] == ["fails", "holds"]


def test_certify_writes_one_file_for_one_sentence(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "thin.cert"
    asked = ("--model", SMALL, "--eps", "0.1", "--positions", "film", "--certificate", file)
    code, _, err = run(capsys, "certify", TEXT, "the film", *asked)
    assert (code, "expected one sentence, found 2" in err, file.exists()) == (2, True, False), err
    assert run(capsys, "certify", TEXT, *asked, "--quiet")[0] == 0
    code, out, _ = run(capsys, "check", file, "--model", SMALL)
    assert (code, out.startswith("holds\t"), "l2 within 0.1 of 'film'" in out) == (0, True, True), out
    code, out, _ = run(capsys, "check", file, "--model", REFERENCE / "sst_1_small_standard")
    assert (code, out.startswith("fails\t")) == (1, True), out


@pytest.mark.parametrize(
    ("path", "more", "why"),
    [
        ("nowhere.cert", (), "there is no such file"),
        (".", (), "found none"),
        ("text.cert", ("--model", "hf:bert"), "expected a folder"),
        ("text.cert", ("--model", "nothing"), "no model 'nothing'"),
    ],
)
def test_wrong_calls_get_one_line(path: str, more: tuple[str, ...], why: str, tmp_path: Path, capsys: Capsys) -> None:
    if path == "text.cert":
        (tmp_path / path).write_text("a great film")
    code, out, err = run(capsys, "check", tmp_path / path, *more)
    assert (code, out, why in err, err.count("\n")) == (2, "", True, 1), err


def test_a_foreign_file_gets_one_line(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "text.cert").write_text("a great film")
    code, out, _ = run(capsys, "check", tmp_path / "text.cert")
    assert (code, out.count("\n")) == (2, 1), out


def test_without_the_checker_there_is_one_line(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it.cert").write_bytes(b"")
    monkeypatch.setattr(check, "CHECKER", "certiformer_checker_that_is_nowhere")
    code, _, err = run(capsys, "check", tmp_path / "it.cert")
    assert (code, err) == (2, "error: the checker is not installed: pip install certiformer-checker\n")
