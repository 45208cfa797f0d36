"""Texts, labels, vocabularies and names from a stranger: they steer no terminal and become no markup."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

import certiformer as cf
from certiformer.cli import main
from certiformer.errors import InputError

BUNDLED = Path(cf.__file__).parent / "models" / "bundled" / "sst-1"
CLEAR = "\x1b[2J"  # empties the screen
TITLE = "\x1b]0;owned\x07"  # names the window
TURN = "\u202e"  # writes what follows from right to left
EVIL = f"{CLEAR}{TITLE}{TURN}\x9b2J\r\x08"
TAG = "<script>alert(1)</script>[bold]x[/bold]"
QUICK = ["--method", "ibp", "--tolerance", "0.5", "--no-attack"]


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A model whose name, labels and words are hostile."""
    folder = Path(shutil.copytree(BUNDLED, tmp_path / f"{TITLE}[red]model"))
    written = json.loads((folder / "config.json").read_text())
    written["id2label"] = {"0": f"no{EVIL}{TAG}", "1": f"yes{EVIL}{TAG}"}
    (folder / "config.json").write_text(json.dumps(written))
    words = (folder / "vocab.txt").read_text().split("\n")
    words[words.index("film")] = f"film{CLEAR}{TITLE}{TURN}{TAG}"
    (folder / "vocab.txt").write_text("\n".join(words))
    return folder


def said(call: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(call)
    out = capsys.readouterr()
    assert stopped.value.code in (0, 1, 2), out.err
    return out.out + out.err


def harmless(text: str) -> bool:
    return not any(c in text for c in ("\x1b", "\x07", "\x9b", "\x08", "\r", TURN))


@pytest.mark.parametrize(
    "call",
    [
        ["radius", f"a {EVIL}film {TAG}", *QUICK],
        ["radius", f"a {EVIL}film {TAG}", "--quiet", *QUICK],
        ["radius", f"a {EVIL}film {TAG}", "--json", *QUICK],
        ["certify", f"a {EVIL}film", "--eps", "0.001", "--method", "ibp"],
        ["attack", f"a {EVIL}film", "--method", "enumeration"],
        ["importance", f"{EVIL}film"],
        ["certify", "a film", "--eps", "0.1", "--positions", f"x{EVIL}"],
        ["radius", "a film", "--norm", f"2{EVIL}"],
        ["radius", "a film", "--file", f"none{EVIL}"],
        ["models"],
    ],
    ids=lambda call: " ".join(call[:1] + [c for c in call[2:] if c.startswith("--")][:1]),
)
def test_nothing_from_outside_reaches_the_terminal_as_it_is(
    call: list[str], evil: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if call[0] == "models" else ["--model", str(evil)]
    printed = said([*call, *model], capsys)
    assert printed.strip()
    assert harmless(printed), repr(printed)


def test_nothing_from_outside_becomes_markup_of_the_report(
    evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(["report", f"a film {EVIL}{TAG}", "--model", str(evil), "--out", str(tmp_path / "r.html"), *QUICK], capsys)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert harmless(page)
    assert TAG not in page
    assert page.count("<script>") == 1  # its own
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize("text", ["film " * 100_000, "(" * 100_000, "\n" * 100_000, "a\u0301" * 100_000, "f" * 10**7])
def test_a_text_that_is_too_long_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError):
        cf.radius(cf.load("sst-1"), text)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("text", ["f" * 1000, "a \udc80 film", "a \x00 film", "\ufeffa film", "film \u0000\uffff"])
def test_odd_characters_are_words_that_the_model_does_not_know(text: str) -> None:
    found = cf.radius(cf.load("sst-1"), text, method="ibp", tolerance=0.5)
    assert all(r >= 0 for r in found.radii)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"a film\n" + b"x" * 10**7 + b"\n", b"\x00" * 1000, b"a\tb\n" + b"\t" * 10**6],
    ids=["no UTF-8", "a long line", "zeros", "a million columns"],
)
def test_a_file_that_is_no_text_ends_in_lines_not_in_a_traceback(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    printed = said(["radius", "--file", str(tmp_path / "in.txt"), "--model", "sst-1", *QUICK], capsys)
    assert harmless(printed)
    assert len(printed) < 10**5
    assert "unexpected" not in printed


def test_output_goes_where_it_was_asked_to_and_no_name_of_a_model_changes_that(
    evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(tmp_path.rglob("*"))
    said(["radius", "a film", "--model", str(evil), "--out", str(tmp_path / "only.json"), *QUICK], capsys)
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "only.json"}
