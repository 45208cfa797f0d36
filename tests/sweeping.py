"""Sentences, models and workers for the tests of sweeps."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = ("good", "bad", "film", "dull", "fine", "plot", "the", "very")


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
