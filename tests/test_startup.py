"""What a start must not load: whatever is slow to import waits until it is needed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch._dynamo", "torch._inductor", "sympy", "matplotlib", "sklearn", "rich", "typer")
HEAVY += ("transformers", "datasets")


def loaded_after(*lines: str) -> list[set[str]]:
    """Modules of `HEAVY` that are there after each of some lines, and were not after `import torch` alone."""
    said = f"; print('loaded', *[m for m in {HEAVY!r} if m in sys.modules and m not in before])\n"
    program = "import sys, torch; before = set(sys.modules)\n" + "".join(line + said for line in lines)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.split()[:1] == ["loaded"]]
    assert len(found) == len(lines)
    return found


def test_nothing_that_is_slow_is_loaded_before_it_is_needed() -> None:
    *library, commands = loaded_after(
        "import certiformer",
        "certiformer.load()",
        "certiformer.radius(certiformer.load('sst-1'), 'a film', positions=[1], tolerance=0.5)",
        "import certiformer.models, certiformer.data, certiformer_reproduction.zoo",
        "import certiformer_reproduction.command_line as c",
        "c.main([])",
        "import certiformer.cli",
    )
    assert all(not found for found in library)
    assert commands <= {"rich", "typer"}
