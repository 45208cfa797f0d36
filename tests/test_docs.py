"""The documents say what is there: generated pages, links, and the code of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from certiformer.core.ops.__main__ import page

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#]+)(?:#[^)]*)?\)")


def test_the_table_of_operations_is_that_of_the_registry() -> None:
    written = (ROOT / "docs" / "supported-ops.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m certiformer.core.ops > docs/supported-ops.md"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [m["target"] for m in LINK.finditer(path.read_text(encoding="utf-8"))]
    assert [t for t in targets if not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_no_page_names_a_folder_of_one_machine(path: Path) -> None:
    assert re.findall(r"(?<![\w.])/(?:root|home|tmp|work|mnt|opt)/\S*", path.read_text(encoding="utf-8")) == []


def python_blocks() -> list[tuple[int, str]]:
    """The Python of the README and the lines it starts at; blocks after `<!-- not run -->` are left out."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = [(text[: m.start("code")].count("\n"), m) for m in BLOCK.finditer(text)]
    return [(line, m["code"]) for line, m in found if m["mark"] != "not run"]


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and in one namespace, as a reader would type it."""
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks()
    assert blocks
    namespace: dict[str, object] = {"__name__": "readme"}
    for line, code in blocks:
        exec(compile("\n" * line + code, str(ROOT / "README.md"), "exec"), namespace)


def test_the_page_of_results_has_a_place_for_every_table() -> None:
    from certiformer_reproduction.paper import TABLES

    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- table: ([\w-]+) -->", written) == list(TABLES)
    assert written.count("<!-- end -->") == len(TABLES)
    assert re.findall(r"<!-- plot: ([\w-]+), [^>]+ -->", written) == ["layers", "words", "time"]
    assert written.count("<!-- end plot -->") == 3
