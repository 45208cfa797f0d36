"""Every snippet of the manuals runs and prints what the page says; the site builds; the notebook runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import snippets
import tutorial_notebook
from snippets import ROOT, Reader, blocks, own_folder, rough

PAGES = snippets.pages()
NEEDS = {"transformers": "transformers", "matplotlib": "matplotlib", "onnxscript": "export"}
CALLS = ("$ ", "certiformer ", "pip ", "python ", "make ")
RUN = [page for page in PAGES if any(block.runs for block in blocks(page.read_text(encoding="utf-8")))]


def names(paths: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in paths]


# the Python of the tutorial is the notebook's, which is run by `make slow` too
WHEN = [
    pytest.param(p, id=n, marks=pytest.mark.slow if p == tutorial_notebook.PAGE else ())
    for p, n in zip(RUN, names(RUN), strict=True)
]


@pytest.mark.parametrize("page", WHEN)
def test_snippets_run_and_print_what_the_page_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, shown in NEEDS.items():
        if any(f"{word}{shown}" in text for word in ("import ", "from ", "$ certiformer ")):
            pytest.importorskip(name, reason=f"{name} is not installed")
    reader = Reader(page.name)
    elsewhere = page == tutorial_notebook.PAGE and find_spec("nbclient") is not None  # its Python is run as a notebook
    with own_folder():
        for block in blocks(text):
            if not block.runs or (elsewhere and block.language == "python"):
                continue
            where = f"{page.name}, line {block.line}"
            if block.commands:
                assert rough(reader.console(block)) == rough(block.body), where
            else:
                printed = reader.python(block)
                assert block.shown is None or rough(printed) == rough(block.shown), where


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_what_is_not_run_says_why(page: Path) -> None:
    """Python, commands and shell are run, or marked with a reason."""
    silent = []
    for block in blocks(page.read_text(encoding="utf-8")):
        shell = block.language in ("sh", "bash", "console") or block.body.startswith(CALLS)
        reason = block.mark.removeprefix("not run").strip(" :")
        if (shell or block.language == "python") and not block.runs and not reason:
            silent.append(f"{page.name}, line {block.line}")
    assert silent == []


def test_a_page_gets_what_its_blocks_print() -> None:
    page = "```python\nx = 3\nprint(x)\n```\n\n```\nold\n```\n\n<!-- not run: no -->\n```python\ny\n```\n"
    page += "\n```python\nx\n```\n"
    assert snippets.renewed(page, "page") == page.replace("old", "3")
    console = "```console\n$ certiformer --version\nold\n```\n"
    assert "certiformer 0" in snippets.renewed(console, "page")
    with pytest.raises(AssertionError, match="exit code 2"):
        snippets.renewed("```console\n$ certiformer radius x --model none\n```\n", "page")


def test_numbers_may_differ_and_words_may_not() -> None:
    assert rough("proved 0.154,\n   █████░░ 3.2 s") == rough("proved 0.1561, ██ 12 s")
    assert rough("proved 0.154") != rough("shown 0.154")


def output(cell: Any) -> str:
    return "".join(part.get("text", "") for part in cell.get("outputs", []) if part.get("output_type") == "stream")


def test_the_notebook_is_the_page() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    stored: Any = nbformat.read(tutorial_notebook.NOTEBOOK, as_version=4)
    expected = tutorial_notebook.cells(tutorial_notebook.PAGE.read_text(encoding="utf-8"))
    assert [(c.cell_type, c.source) for c in stored.cells] == expected, "run: python tools/tutorial_notebook.py"
    assert "background:" in str(stored.cells[-2].outputs)  # the coloured words


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_the_page_says() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    stored: Any = nbformat.read(tutorial_notebook.NOTEBOOK, as_version=4)
    page = tutorial_notebook.PAGE.read_text(encoding="utf-8")
    again = tutorial_notebook.executed(tutorial_notebook.made(page))
    printed = [output(cell) for cell in again.cells if cell.cell_type == "code"]
    assert [rough(p) for p in printed] == [rough(output(c)) for c in stored.cells if c.cell_type == "code"]
    said = [block.shown or "" for block in blocks(page) if block.language == "python"]
    assert [rough(p) for p in printed[:-1]] == [rough(text) for text in said]


def site(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """Build the site, as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env={**os.environ, **quiet}, capture_output=True, text=True, check=False)


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[docs]'")
    import build_site

    build_site.build(tmp_path / "docs")
    config = tmp_path / "mkdocs.yml"
    written = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config.write_text(written.replace("build/docs", "docs").replace("paths: [src]", f"paths: [{ROOT / 'src'}]"))
    done = site(tmp_path / "site", config)
    assert done.returncode == 0, done.stderr[-2000:]
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*https?://[^>]*>|unpkg|fonts\.g", index) == []
    for page, word in {"reference": "assert_certified", "options": "tolerance", "commands": "--eps"}.items():
        assert word in (tmp_path / "site" / f"{page}.html").read_text(encoding="utf-8")
    lost = tmp_path / "docs" / "stability.md"
    for page in set((tmp_path / "docs").rglob("*.md")) - {lost}:  # one page is enough to be lost on
        page.unlink()
    lost.write_text(lost.read_text(encoding="utf-8") + "\n[lost](nowhere.md)\n", encoding="utf-8")
    assert "nowhere.md" in site(tmp_path / "broken", config).stderr
