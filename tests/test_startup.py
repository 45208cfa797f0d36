"""What a start must not load: whatever is slow to import waits until it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch._dynamo", "torch._inductor", "sympy", "transformers", "matplotlib", "sklearn", "rich", "typer")


def loaded_after(code: str) -> set[str]:
    """Modules of `HEAVY` that are there after `code`, and were not after `import torch` alone."""
    program = (
        f"import sys, torch; before = set(sys.modules)\n{code}\n"
        f"print(*[m for m in {HEAVY!r} if m in sys.modules and m not in before])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")[-2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import certiformer",
        "import certiformer; certiformer.load()",
        "import certiformer; certiformer.radius(certiformer.load('sst-1'), 'a film', positions=[1], tolerance=0.5)",
        "import certiformer_reproduction.command_line as c; c.main([])",
    ],
)
def test_the_library_loads_nothing_that_is_slow(code: str) -> None:
    assert loaded_after(code) == set()


def test_the_commands_load_no_compiler() -> None:
    assert loaded_after("import certiformer.cli") <= {"rich", "typer"}
