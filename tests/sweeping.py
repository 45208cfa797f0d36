"""Sentences, models and workers for the tests of sweeps."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certiformer.sweep.runner import Lost, Unit

WORDS = ("good", "bad", "film", "dull", "fine", "plot", "the", "very")
ASKED = ["--eps", "0.05,0.2,0.5,1", "--attack-steps", "5", "--restarts", "1", "--method", "backward-forward", "--quiet"]


def sentences(count: int, seed: int = 0) -> list[tuple[str, int]]:
    draw = random.Random(seed)
    return [(" ".join(draw.choices(WORDS, k=draw.randint(2, 6))), draw.randint(0, 1)) for _ in range(count)]


@dataclass(frozen=True)
class Mortal:
    """A worker that dies over units whose names say how often."""

    folder: Path

    def __call__(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        died = self.folder / name
        times = len(died.read_text()) if died.exists() else 0
        if name.startswith("die") and times < int(name[3]):
            died.write_text("x" * (times + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return [(name, {"after": times})]


@dataclass(frozen=True)
class Mortals:
    """Makes them."""

    folder: Path

    def __call__(self) -> Mortal:
        return Mortal(self.folder)


def units(*names: str) -> list[Unit]:
    return [Unit(name, (name,), 1.0) for name in names]


def told(results) -> dict[str, object]:
    return {u.content: r.why if isinstance(r, Lost) else r[0][1]["after"] for u, r in results}


def command(model: Path, data: Path, out: Path, *more: object) -> subprocess.Popen:
    words = ["sweep", "--model", model, "--data", data, "--out", out, *ASKED, *more]
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "certiformer", *map(str, words)],
        env={**os.environ, **paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(what, *, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def lines(out: Path) -> int:
    path = out / "rows.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def processes(named: str) -> list[int]:
    """The processes of this machine with a word in their command, as Linux knows them."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = line.read_bytes()
        except OSError:
            continue
        if named.encode() in said and alive(int(line.parent.name)):
            found.append(int(line.parent.name))
    return found


def parent(pid: int) -> int:
    """The process that started one; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def alive(pid: int) -> bool:
    """Whether a process is there, and more than a name that nobody asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
