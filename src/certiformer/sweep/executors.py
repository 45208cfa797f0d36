"""Where workers are: in this process, in several of this machine, or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from .options import Running
from .runner import Done, Here, Unit, Work


class Sized(Protocol):
    """An executor that knows how many workers it has."""

    workers: int

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        """What became of each unit."""


class InProcess(Here):
    """In this process, one after the other."""

    workers = 1


def executor_of(asked: Running) -> Sized:
    """The executor that was asked for."""
    if asked.on == "ray":
        from .on_ray import OnRay

        return OnRay(asked.workers, num_gpus=asked.num_gpus, retries=asked.retries)
    if (asked.workers or 1) > 1:
        from .processes import Processes

        return Processes(asked.workers or 1, retries=asked.retries)
    return InProcess()
