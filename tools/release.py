"""The checklist before a release, as a script; nothing is uploaded and no tag is set.

    make release-check                    # all of it: some ten minutes
    python tools/release.py --only versions,package

Each check prints one line; the exit code is 0 if all of them hold.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EPOCH = "1580601600"  # what files in the archives are dated, unless SOURCE_DATE_EPOCH says otherwise
OTHERS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class Failed(Exception):
    """A check that does not hold."""


def run(*command: str, **more: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def versions() -> str:
    """The version is the same everywhere, and the changelog has an entry for it."""
    (version,) = re.findall(r'__version__ = "(.*)"', read("src/certiformer/_version.py"))
    if f"version: {version}" not in read("CITATION.cff"):
        raise Failed(f"CITATION.cff does not say version: {version}")
    if f"## {version}" not in read("CHANGELOG.md"):
        raise Failed(f"CHANGELOG.md: Unreleased is to become {version}")
    return version


def clean() -> str:
    """Everything is committed."""
    left = run("git", "status", "--porcelain")
    if left:
        raise Failed(f"uncommitted:\n{left}")
    return run("git", "rev-parse", "--short", "HEAD").strip()


def tests() -> str:
    """Linters, types, tests."""
    run(sys.executable, "-m", "ruff", "check", ".")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")
    run(sys.executable, "-m", "mypy")
    return run(sys.executable, "-m", "pytest", "-q", OMP_NUM_THREADS="1").splitlines()[-1]


def site() -> str:
    """The site builds without a warning."""
    run(sys.executable, "tools/build_site.py", "build/docs")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")
    return "build/site"


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the archives in a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def build(source: Path, folder: Path) -> dict[str, str]:
    """Wheel and source archive of a tree, without fetching anything."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    run(*command, SOURCE_DATE_EPOCH=os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    return hashes(folder)


def copy(target: Path) -> Path:
    """The files that are committed, in another place and with other dates."""
    names = run("git", "ls-files", "-z").split("\0")
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)
    return target


def package() -> str:
    """Two builds, from two places, are the same to the last byte; and the wheel installs."""
    with tempfile.TemporaryDirectory() as folder:
        first = build(copy(Path(folder) / "one"), Path(folder) / "a")
        second = build(copy(Path(folder) / "a-longer-name" / "two"), Path(folder) / "b")
        if first != second:
            raise Failed(f"two builds differ: {first} and {second}")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(Path(folder) / "a", ROOT / "dist")
    return ", ".join(f"{name} {value[:12]}" for name, value in first.items())


def pythons() -> str:
    """Every Python at hand (on the PATH) compiles the package without a warning."""
    tried = []
    for version in OTHERS:
        found = shutil.which(f"python{version}")
        if found is None or subprocess.run([found, "-V"], capture_output=True, check=False).returncode:
            continue  # or a shim of pyenv, of a version that is not chosen
        with tempfile.TemporaryDirectory() as cache:
            run(found, "-W", "error", "-m", "compileall", "-q", "-f", "src/certiformer", PYTHONPYCACHEPREFIX=cache)
        tried.append(version)
    missing = [version for version in OTHERS if version not in tried]
    return f"compiled by {', '.join(tried)}" + (f"; not at hand: {', '.join(missing)}" if missing else "")


CHECKS: dict[str, Callable[[], str]] = {
    "clean": clean,
    "versions": versions,
    "pythons": pythons,
    "package": package,
    "site": site,
    "tests": tests,
}


def main() -> int:
    """Run the checks; how many do not hold."""
    parser = argparse.ArgumentParser(description="The checklist before a release; nothing is uploaded.")
    parser.add_argument("--only", help=f"some of {', '.join(CHECKS)}, with commas")
    only = parser.parse_args().only
    chosen = only.split(",") if only else list(CHECKS)
    if unknown := sorted(set(chosen) - set(CHECKS)):
        parser.error(f"no check {', '.join(unknown)}: there are {', '.join(CHECKS)}")
    failed = 0
    for name in chosen:
        try:
            print(f"ok      {name}: {CHECKS[name]()}", flush=True)
        except Failed as why:
            failed += 1
            print(f"FAILED  {name}: {why}", flush=True)
    print("By hand: `make slow`; on a GPU `pytest tests/core/test_replay.py`; then a tag, and `twine upload dist/*`.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
