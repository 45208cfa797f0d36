"""When to stop: whoever computes for long asks now and then whether there is time left."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import out_of_memory

log = logging.getLogger(__name__)

OUT_OF_TIME, OUT_OF_MEMORY = "out of time", "out of memory"
SHARE, LEAST = 0.02, 0.5  # of a time, and seconds, that are kept for what comes after


class OutOfTime(Exception):
    """There is no time left; what was proved before stays proved."""


@contextmanager
def while_there_is_room() -> Iterator[list[str]]:
    """For what makes better what is proved already: that is the answer where time or memory is out. What was out is
    put into the list."""
    ended: list[str] = []
    try:
        yield ended
    except OutOfTime:
        ended.append(OUT_OF_TIME)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        ended.append(OUT_OF_MEMORY)
        log.warning("out of memory: what was proved before is the answer")


@dataclass(frozen=True)
class Deadline:
    """A moment after which nothing is begun; none for infinity."""

    end: float  # of time.monotonic

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        return Deadline(float("inf") if seconds is None else time.monotonic() + seconds)

    @staticmethod
    def before(seconds: float | None) -> Deadline:
        """As long before that as telling the answer may take, and what was begun last: nothing is stopped half way."""
        if seconds is None:
            return Deadline.after(None)
        return Deadline.after(seconds - min(max(SHARE * seconds, LEAST), seconds / 4))

    @property
    def limited(self) -> bool:
        return self.end < float("inf")

    def or_after(self, seconds: float | None) -> Deadline:
        """This moment, or some seconds from now where that is earlier."""
        return Deadline(min(self.end, Deadline.after(seconds).end))

    def share(self, part: float) -> Deadline:
        """The moment at which a part of the time that is left has passed."""
        return Deadline(time.monotonic() + part * self.left) if self.limited else self

    @property
    def passed(self) -> bool:
        return time.monotonic() > self.end

    @property
    def left(self) -> float:
        """Seconds until then, a little more than none."""
        return max(self.end - time.monotonic(), 1e-3)

    def check(self) -> None:
        """Raise `OutOfTime` where the moment has passed."""
        if self.passed:
            raise OutOfTime


NEVER = Deadline(float("inf"))
