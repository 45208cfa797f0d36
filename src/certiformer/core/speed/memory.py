"""Memory: how much there is, and sweeps cut into windows of rows that fit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ..ops.base import Shape

Window = tuple[tuple[int, int], ...]  # start and length on every axis
GIB = 1 << 30
LEAST = 1 << 22  # bytes below which it is of no use to try again
CACHED = 1 << 26  # bytes of a CPU's sweep beyond which its tensors only go to memory and back
TEMPORARIES = 4  # bytes at the widest point of a sweep for each byte of the coefficients it holds


def free_memory(device: torch.device) -> int:
    """Bytes that can be had now on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = 4 * GIB
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            available = min(available, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(available, 64 << 20)


def default_budget(device: torch.device) -> int:
    """Half of what is free; on a CPU never more than 4 GiB, beyond which larger pieces are no faster."""
    half = free_memory(device) // 2
    return half if device.type == "cuda" else min(half, 4 * GIB)


@contextmanager
def peak(device: torch.device) -> Iterator[Callable[[], int]]:
    """How many bytes of a GPU were taken at once, at most, beyond those at the beginning; 0 on a CPU."""
    if device.type != "cuda":
        yield lambda: 0
        return
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    yield lambda: torch.cuda.max_memory_allocated(device) - before


def room_of(memory: int, like: Tensor) -> int:
    """How many numbers a sweep may hold, temporaries too: on a CPU not more than are fast, however much is there."""
    return (memory if like.is_cuda else min(memory, CACHED)) // like.element_size()


@dataclass(eq=False)
class Room:
    """How many bytes there are at most, where there were not as many as it seemed."""

    bytes: float = math.inf

    def halve(self, memory: int) -> bool:
        """Memory ran out with so much: take half of it from now on; whether that is something."""
        self.bytes = min(self.bytes, memory) // 2
        return self.bytes >= LEAST


@dataclass(eq=False)
class Footprints:
    """What slices of nodes took in earlier sweeps, so that the first window of the next is no guess.

    Those of one question: windows may show in the last bits, and the same question has the same answer.
    """

    known: dict[tuple[int, bool, int], int] = field(default_factory=dict)

    @cached_property
    def single(self) -> Footprints:
        """Those in single precision."""
        return Footprints()

    def per_slice(self, key: tuple[int, bool, int]) -> int:
        """Entries per slice and instance of rows on a node, with or without rounding; 0 while nothing is known."""
        return self.known.get(key, 0)

    def note(self, key: tuple[int, bool, int], entries: int) -> None:
        self.known[key] = entries


@dataclass
class Windows:
    """The rows of a node, a window at a time: slabs along the longest axis.

    `per_slice` is what one slice of it needs. While that is unknown (0), the first slab is one slice thick, and what
    it used says how thick the next may be.
    """

    shape: Shape
    per_slice: int = 0
    start: int = 0
    sizes: list[int] = field(default_factory=list)

    @property
    def axis(self) -> int:
        return max(range(len(self.shape)), key=lambda a: self.shape[a], default=0)

    @property
    def slices(self) -> int:
        """How many there are; a single number, which has no axis, is one."""
        return self.shape[self.axis] if self.shape else 1

    def next(self, room: int) -> Window | None:
        """The next window if a sweep may hold `room` entries."""
        left = self.slices - self.start
        if left <= 0:
            return None
        length = max(1, min(room // self.per_slice, left)) if self.per_slice else 1
        window = tuple((self.start, length) if a == self.axis else (0, s) for a, s in enumerate(self.shape))
        self.start += length
        self.sizes.append(length)
        return window

    def used(self, entries: int) -> None:
        """What the sweep over the last window held at most."""
        self.per_slice = max(self.per_slice, math.ceil(entries / self.sizes[-1]))

    def joined(self, parts: list[Tensor], lead: int) -> Tensor:
        """Results of the windows as one tensor; `lead` axes come before those of the rows."""
        if len(parts) == 1:
            return parts[0]
        sides = max(p.shape[0] for p in parts)
        return torch.cat([p.expand(sides, *p.shape[1:]) for p in parts], dim=lead + self.axis)
