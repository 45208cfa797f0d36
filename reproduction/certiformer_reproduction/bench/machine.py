"""The machine at hand: what it is, how fast it multiplies and moves numbers, how much memory some work took."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from certiformer.core.counting import Rates as Rates

# data sheets: multiply-adds count as two; float32 without TF32, which bounds must not use
PEAKS: dict[str, dict[str, float]] = {
    "H200": {"float64": 67e12, "float32": 67e12, "bytes": 4.8e12},
    "H100": {"float64": 67e12, "float32": 67e12, "bytes": 3.35e12},
    "A100": {"float64": 19.5e12, "float32": 19.5e12, "bytes": 2.0e12},
}


def describe(device: str) -> dict[str, Any]:
    """What a reader of a figure must know about the machine."""
    from certiformer._version import __version__

    return {
        "device": name(device),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "certiformer": __version__,
    }


def name(device: str) -> str:
    """The name of the device in words."""
    return torch.cuda.get_device_name(device) if is_cuda(device) else _processor()


def is_cuda(device: str) -> bool:
    return device.startswith("cuda")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def synchronized(device: str) -> float:
    """The time, once everything that was started on a device is done."""
    if is_cuda(device):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def stated_rates(device: str, dtype: torch.dtype) -> Rates | None:
    """From the data sheet, where the device is known."""
    kind = str(dtype).removeprefix("torch.")
    if is_cuda(device):
        for known, peak in PEAKS.items():
            if known in torch.cuda.get_device_name(device):
                return Rates(peak[kind], peak["bytes"], f"data sheet of the {known}")
    return None


def measured_rates(device: str, dtype: torch.dtype) -> Rates:
    """What a product and a sum of large matrices reach."""
    n = 8192 if is_cuda(device) else 1536
    a = torch.ones(n, n, dtype=dtype, device=device)
    b = torch.empty(4 * n, n, dtype=dtype, device=device)
    product = _fastest(device, lambda: torch.mm(a, a))
    passed = _fastest(device, lambda: b.add_(1))
    return Rates(2 * n**3 / product, 2 * b.numel() * b.element_size() / passed, "a product and a sum of large matrices")


def _fastest(device: str, work: Callable[[], object], repeats: int = 4) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = synchronized(device)
        work()
        best = min(best, synchronized(device) - start)
    return best


@dataclass
class Peak:
    """The most memory that was in use at once on top of what was in use before, in bytes; None if unknown."""

    bytes: int | None = field(default=None)


@contextmanager
def peak_memory(device: str) -> Iterator[Peak]:
    """On a GPU what tensors held at most; on a CPU how far the resident set of the process grew."""
    peak = Peak()
    if is_cuda(device):
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device)
        return
    before = _forget_peak()
    yield peak
    after = _resident("VmHWM")
    peak.bytes = None if before is None or after is None else max(0, after - before)


def _forget_peak() -> int | None:
    """Give back what was freed, set the kernel's high-water mark to now, and say where that is."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return None
    return _resident("VmRSS")


def _resident(key: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
