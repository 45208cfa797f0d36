"""The documents say what is there: generated pages, links, and the code of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from certiformer.core.lowering.__main__ import page

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<target>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def test_the_table_of_operations_is_that_of_the_registry() -> None:
    written = (ROOT / "docs" / "supported-ops.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m certiformer.core.lowering > docs/supported-ops.md"


def anchors(path: Path) -> set[str]:
    """The headings of a page as a browser names them: lower case, hyphens for spaces, nothing else but letters."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_links_lead_somewhere(path: Path) -> None:
    lost = []
    for found in LINK.finditer(path.read_text(encoding="utf-8")):
        target = path.parent / found["target"] if found["target"] else path
        anchor = found["anchor"]
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(found[0])
    assert lost == []


def test_every_page_is_linked_from_the_readme_or_from_a_page_that_is() -> None:
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            ahead += [page.parent / m["target"] for m in LINK.finditer(page.read_text(encoding="utf-8")) if m["target"]]
    assert [str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")) if p.resolve() not in reached] == []


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
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
    from certiformer_reproduction.paper.tables import TABLES

    written = (ROOT / "docs" / "notebook" / "results.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- table: ([\w-]+) -->", written) == list(TABLES)
    assert written.count("<!-- end -->") == len(TABLES)
    assert re.findall(r"<!-- plot: ([\w-]+), [^>]+ -->", written) == ["layers", "words", "time"]
    assert written.count("<!-- end plot -->") == 3
