"""Memory over many sentences, measured; minutes of work."""

from __future__ import annotations

import pytest

import certiformer as cf
from sweeping import sentences

COUNT = 10_000


def resident() -> int:
    """Bytes that this process holds in memory, as Linux knows them."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_sentences(model, tmp_path):
    held: list[tuple[int, int]] = []

    def told(line: str) -> None:
        held.append((int(line.split()[0].replace(",", "")), resident()))

    asked = {"eps": "0.1,0.5", "attack": False, "method": "ibp", "quick": False}
    result = cf.sweep(str(model), sentences(COUNT), out=tmp_path, progress=told, **asked)
    assert len(result.table) == COUNT
    for done, size in held:
        print(f"{done:6,} sentences: {size / 2**20:.1f} MiB")
    early = next(size for done, size in held if done >= COUNT // 10)
    assert held[-1][1] <= early + 32 * 2**20
