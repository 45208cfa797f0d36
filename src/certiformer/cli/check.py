"""`certiformer check`"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..core.names import option
from ..errors import InputError
from ..named import BUNDLED, HUB, check_name
from . import UNKNOWN, WRONG_CALL
from .flags import Given, command, one_argument
from .options import Quiet

CHECKER = "certiformer_checker"
SUFFIX = ".cert"
HOLDS = 0  # the checker's exit code where a certificate holds


@dataclass(frozen=True, kw_only=True)
class Checking(Quiet):
    """What certificates are compared with, and how."""

    model: str | None = option(None, "The model's folder, or a bundled model; without, the graph in the file is taken.")
    exact: bool = option(False, "With rigorous ball arithmetic, which needs python-flint.")


@dataclass(frozen=True)
class Checked:
    """What the checker says of a file: its exit code and its last line."""

    file: Path
    code: int
    line: str


@command(Checking, argument=one_argument("path", "A certificate, or a folder of them."), without=("verbose",))
def check(given: Given) -> int:
    """Does a certificate hold? Asked of the second program, which shares no code with this one. Exit code 0: all do.

    Example: [bold]certiformer check thin.cert --model runs/sst_2[/bold]
    """
    asked, path = given(Checking), Path(given.values["path"])
    files, extra = _files(path), [] if asked.model is None else [str(_folder(asked.model))]
    extra += ["--exact"] if asked.exact else []
    environment = _environment()
    checked = []
    for file in files:
        checked.append(_checked(file, extra, environment))
        if asked.quiet or len(files) == 1:
            _tell(checked[-1], alone=len(files) == 1)
    if not asked.quiet and len(files) > 1:
        _table(checked)
    worst = {each.code for each in checked} - {HOLDS}
    return 0 if not worst else UNKNOWN if worst == {1} else WRONG_CALL


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path}: expected a certificate, or a folder of them; there is no such file")
        return [path]
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise InputError(f"{path}: expected certificates, files that end in {SUFFIX}; found none")
    return files


def _folder(model: str) -> Path:
    """The folder of a model."""
    if model.startswith(HUB):
        raise InputError(f"--model {model}: expected a folder, or one of {', '.join(BUNDLED)}")
    check_name(model)
    if model not in BUNDLED:
        return Path(model)
    found = find_spec("certiformer")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "models" / "bundled" / model


def _environment() -> dict[str, str]:
    """In which the checker can be run: where it is installed, or beside the sources of this package."""
    found = find_spec(CHECKER)
    place = Path(__file__).resolve().parents[3] / "checker" / CHECKER
    if found is not None and found.origin is not None:
        place = Path(found.origin).parent
    if not place.is_dir():
        raise InputError("the checker is not installed: pip install certiformer-checker")
    paths = (str(place.parent), os.environ.get("PYTHONPATH"))
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def _checked(file: Path, extra: list[str], environment: dict[str, str]) -> Checked:
    run = subprocess.run(  # a process of its own, that loads nothing of this package
        [sys.executable, "-m", CHECKER, str(file), *extra], capture_output=True, text=True, env=environment, check=False
    )
    lines = (run.stdout.strip() or run.stderr.strip() or "the checker said nothing").splitlines()
    return Checked(file, run.returncode, lines[-1].removeprefix("holds: ").removeprefix("does not hold: "))


def _tell(checked: Checked, *, alone: bool) -> None:
    from .view import row

    verdict = "holds" if checked.code == HOLDS else "fails"
    row(*([] if alone else [str(checked.file)]), verdict, checked.line)


def _table(checked: list[Checked]) -> None:
    from .terminal import console
    from .view import shown, table

    output = console()
    made = table("certificate", "")
    made.add_column("", overflow="fold")
    for each in checked:
        holds = each.code == HOLDS
        verdict = shown("holds" if holds else "fails", "green" if holds else "bold red")
        made.add_row(shown(each.file.name), verdict, shown(each.line))
    output.print(made)
    output.print(f"{sum(each.code == HOLDS for each in checked):,} of {len(checked):,} hold.")
