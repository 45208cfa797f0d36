"""How far a sweep is: sentences done, certified so far, rate and time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..numbers import written
from .store import Record, Store, read_manifest

EVERY = 5.0  # seconds between two lines
RECENT = 200  # rows that the rate is taken from


@dataclass
class Tally:
    """Counts over rows; it holds numbers only, however many rows there are."""

    total: int
    radii: tuple[float, ...]
    done: int = 0
    decided: int = 0
    right: int = 0
    errors: int = 0
    certified: int = 0  # at the middle one of the radii; where radii are searched, with any radius at all
    times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    last: float = 0.0

    @classmethod
    def of(cls, manifest: Record, store: Store, keys: Iterable[str] | None = None) -> Tally:
        """What a store holds of some keys, or of all."""
        own = None if keys is None else set(keys)
        cases = len(manifest["models"]) * len(manifest["norms"]) * len(manifest["words"])
        tally = cls(cases * manifest["data"]["sentences"] if own is None else len(own), tuple(manifest["eps"]))
        tally.take(r for r in store.records() if own is None or r["key"] in own)
        tally.times.clear()
        return tally

    @property
    def radius(self) -> float:
        """The radius that certified sentences are counted at."""
        return self.radii[len(self.radii) // 2] if self.radii else 0.0

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            self.done += 1
            self.errors += record["status"] == "error"
            self.right += record["status"] == "decided"
            proved = record.get("certified")
            self.certified += proved is not None and proved >= self.radius
            if "at" in record:
                self.times.append(record["at"])

    def due(self) -> bool:
        """Whether it is time for another line."""
        now = time.monotonic()
        if now - self.last < EVERY and self.done < self.total:
            return False
        self.last = now
        return True

    @property
    def rate(self) -> float | None:
        """Sentences a second, of late."""
        span = max(self.times) - min(self.times) if len(self.times) > 1 else 0.0
        return (len(self.times) - 1) / span if span > 0 else None

    def line(self, left: float | None = None) -> str:
        """Where it stands, in a line."""
        from ..questions.estimate import spoken

        where = f"at {written(self.radius)}" if self.radii else "with some radius"
        share = f"{self.certified / self.done:.1%}" if self.done else "0%"
        parts = [f"{self.done:,} of {self.total:,} sentences", f"{share} certified {where}"]
        parts += [f"{self.errors:,} failed"] if self.errors else []
        rate = self.rate
        parts += [f"{rate:.3g} a second"] if rate else []
        if left is None and rate:
            left = (self.total - self.done) / rate
        parts += [f"about {spoken(left)} left"] if left and self.done < self.total else []
        return ", ".join(parts)


def watched(folder: Path) -> Tally:
    """Where the sweep of a folder stands, read from its files alone."""
    manifest, store = read_manifest(folder), Store(folder)  # no folder is made where there is none
    tally = Tally.of(manifest, store)
    times = sorted(record["at"] for record in store.records() if "at" in record)[-RECENT:]
    tally.times.extend(times)
    return tally
