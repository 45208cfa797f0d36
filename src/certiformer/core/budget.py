"""How long a search should take: by the work that is counted, and the speed of a machine as it was measured once. What
"auto" chooses goes by it, so it must not change from one day to the next: no clock is looked at here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .captured import Compiled
from .counting import Work, count
from .names import BoundOptions
from .relaxation import Scheme, Style

SECONDS: Mapping[str, float] = {"fast": 1.5, "balanced": 10.0, "tight": 2000.0}  # of an input, by the budget's name
EVALUATIONS = 4.0  # for a radius: most are drafts, which take a third of the time


class Speed(NamedTuple):
    """What a machine does in a second."""

    operations: float  # of products
    numbers: float  # that go through a node
    products: float  # however small

    def seconds(self, work: Work) -> float:
        """Of an evaluation with rounding, about."""
        return work.flops / self.operations + work.carried / self.numbers + len(work.products) / self.products


CORE = Speed(2e10, 1e8, 1e3)  # of a CPU, in float64: right within a factor of two on models of width 32 to 256
GPU = Speed(1.5e12, 1e10, 2e3)  # by the times of an H200, recordings included


@dataclass(frozen=True)
class Size:
    """What is asked of one input: so many sets of words, so many of them at once, each of so many numbers."""

    instances: int
    varying: int
    each: int
    width: int  # bytes of a number

    def seconds(self, compiled: Compiled, style: Style) -> float:
        """That a search should take."""
        key = (self, style)
        if key not in compiled.counted:
            scheme = Scheme(graph=compiled.graph, anchors=compiled.anchors, local=compiled.local, style=style)
            work = count(scheme, instances=self.instances, varying=self.varying, each=self.each, width=self.width)
            compiled.counted[key] = EVALUATIONS * (GPU if compiled.cuda else CORE).seconds(work)
        return compiled.counted[key]


def fits(options: BoundOptions, style: Style, compiled: Compiled, size: Size) -> bool:
    """Whether a search by bounds of a style should end in the time of the budget."""
    return size.seconds(compiled, style) <= (options.seconds or SECONDS[options.budget])
