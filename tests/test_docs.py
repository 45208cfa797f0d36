"""The documents say what is there: generated pages, links, and what they quote."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from certiformer.core.lowering.__main__ import page

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
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


def test_the_page_of_results_has_a_place_for_every_table() -> None:
    from certiformer_reproduction.paper.tables import TABLES

    written = (ROOT / "docs" / "notebook" / "results.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- table: ([\w-]+) -->", written) == list(TABLES)
    assert written.count("<!-- end -->") == len(TABLES)
    assert re.findall(r"<!-- plot: ([\w-]+), [^>]+ -->", written) == ["layers", "words", "time"]
    assert written.count("<!-- end plot -->") == 3


QUOTE = re.compile(r"^<!-- code: (?P<file>\S+) -->\n```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_code_that_a_page_quotes_is_that_of_the_file(path: Path) -> None:
    for quoted in QUOTE.finditer(path.read_text(encoding="utf-8")):
        assert quoted["code"] in (ROOT / quoted["file"]).read_text(encoding="utf-8"), quoted["file"]


STEP = re.compile(r"^\| `(?P<file>[\w/]+\.py)` \| `(?P<name>[\w.]+)` \|", re.MULTILINE)


def test_the_walk_through_the_code_names_what_is_there() -> None:
    """Every step of the page of the house is a function of the file it names."""
    steps = [(m["file"], m["name"]) for m in STEP.finditer((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))]
    assert len(steps) > 30
    lost = [(file, name) for file, name in steps if name not in defined(ROOT / "src" / "certiformer" / file)]
    assert lost == []


def defined(path: Path) -> set[str]:
    """The functions and methods of a file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return names


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames tell the class of a method from Python 3.11 on")
def test_the_walk_is_walked() -> None:
    """A question really goes through every step of the page."""
    import certiformer as cf

    steps = {(m["file"], m["name"]) for m in STEP.finditer((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))}
    package = Path(cf.__file__).parent
    seen: set[tuple[str, str]] = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(package)):
            seen.add((Path(path).relative_to(package).as_posix(), str(frame.f_code.co_qualname)))

    sys.setprofile(watch)
    try:
        cf.radius("sst-1", "a film", method="backward-forward", tolerance=0.5)
    finally:
        sys.setprofile(None)
    assert sorted(steps - seen - {("options.py", "keywords")}) == []


def test_the_page_of_the_json_has_every_field() -> None:
    from certiformer.report import records

    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    kinds = (records.Document, records.Sentence, records.Run, records.Place, records.Verdict, records.Failure)
    assert [f"{k.__name__}.{f.name}" for k in kinds for f in fields(k) if f"`{f.name}`" not in page] == []


FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
FOLDERS = ("", "src/certiformer", "src/certiformer/core", "reproduction/certiformer_reproduction")


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_files_that_a_page_names_are_there(path: Path) -> None:
    named = set(FILE.findall(path.read_text(encoding="utf-8")))
    assert [file for file in sorted(named) if not any((ROOT / folder / file).is_file() for folder in FOLDERS)] == []


def test_the_page_of_the_core_has_a_line_for_every_file() -> None:
    core = ROOT / "src" / "certiformer" / "core"
    page = (core / "README.md").read_text(encoding="utf-8")
    parts = [p.name + "/" * p.is_dir() for p in core.iterdir() if not p.name.startswith("_") and p.suffix != ".md"]
    parts += [p.name for p in (core / "speed").glob("[!_]*.py")]
    assert [part for part in parts if f"`{part}`" not in page] == []


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


YAML = re.compile(r"^```yaml\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def test_forms_and_workflows_are_yaml() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    asked = {form.stem: yaml.safe_load(form.read_text(encoding="utf-8")) for form in forms}
    assert {"bug", "model", "wrong-certificate"} <= set(asked)
    assert all(form["body"] for name, form in asked.items() if name != "config")
    shown = [m["code"] for page in PAGES for m in YAML.finditer(page.read_text(encoding="utf-8"))]
    steps = [step for code in shown for job in yaml.safe_load(code)["jobs"].values() for step in job["steps"]]
    assert any("--certiformer-table" in step.get("run", "") for step in steps)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["references"][0]["year"] == 2020


def test_the_reference_has_every_public_name() -> None:
    import certiformer as cf

    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert [name for name in cf.__all__ if not re.search(rf"\b{name}\b", page)] == []
