"""What a stranger gets: a small wheel without tables, and a source archive that can test itself."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MEGABYTE = 10**6
LEFT_OUT = {"__pycache__", ".venv", ".git", "build", "dist"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = str(tmp_path_factory.mktemp("dist"))
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
    (sdist,) = SdistBuilder(str(ROOT)).build(directory=folder)
    return Path(wheel), Path(sdist)


def test_the_wheel_is_the_product_and_nothing_else(built: tuple[Path, Path]) -> None:
    wheel, _ = built
    assert wheel.stat().st_size < 5 * MEGABYTE
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"certiformer"}
    kinds = (".py", "/py.typed", "/README.md", ".js", ".css", "/page.html", "/icon.svg")
    code = [name for name in names if name.endswith(kinds)]
    models = [name for name in names if name.startswith("certiformer/models/bundled/")]
    assert sorted(set(names) - set(code) - set(models)) == []
    for model in ("sst-1", "sst-2", "sst-3", "sst-2-standard"):
        assert f"certiformer/models/bundled/{model}/model.safetensors" in names


def test_the_source_archive_holds_what_its_tests_need(built: tuple[Path, Path]) -> None:
    _, sdist = built
    assert sdist.stat().st_size < 7 * MEGABYTE
    with tarfile.open(sdist) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = ["Makefile", "constraints.txt", "pyproject.toml", "LICENSE", *(p.name for p in ROOT.glob("*.md"))]
    wanted += ["mkdocs.yml", "CITATION.cff", ".github/ISSUE_TEMPLATE/wrong-certificate.yml"]
    for folder in ("src", "tests", "reproduction", "checker", "docs", "examples", "tools"):
        files = (p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.is_file())
        wanted += [p.as_posix() for p in files if not LEFT_OUT & set(p.parts) and not p.name.startswith(".")]
    assert sorted(set(wanted) - held) == []


def test_two_builds_are_the_same_to_the_last_byte(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="build is not installed")
    pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: git says which files belong to it")
    import release

    first = release.build(release.copy(tmp_path / "one"), tmp_path / "a")
    second = release.build(release.copy(tmp_path / "another" / "place"), tmp_path / "b")
    assert sorted(Path(name).suffix for name in first) == [".gz", ".whl"]
    assert first == second


def test_versions_agree() -> None:
    from certiformer import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
