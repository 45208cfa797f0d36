"""Batches of pieces on a GPU: always of the same two sizes, however many there are, so that few recordings serve."""

from __future__ import annotations

import math
from typing import NamedTuple

FILLED = 5e11  # operations that take about as long as going through the kernels of a recording does
FEW, MANY, MOST = 64, 8, 256  # a few pieces at most; many are so many times as many, at most so many


class Batches(NamedTuple):
    """Of how many pieces a small and a large batch are."""

    few: int
    many: int

    @staticmethod
    def of(flops: float) -> Batches:
        """Given the operations that one piece takes: a few that just fill the device, and many."""
        few = min(FEW, doubled(math.ceil(FILLED / max(flops, 1.0))))
        return Batches(few, min(MANY * few, MOST))

    def next(self, left: int, most: int) -> int:
        """The size of the next batch where so many pieces are left; memory holds `most`."""
        return min(self.many if left > self.many // 2 else self.few, most)


def doubled(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << (count - 1).bit_length()
