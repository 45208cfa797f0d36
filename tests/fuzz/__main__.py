"""`python -m fuzz --minutes 10`: random models until the time is up; the first that fails is made small and printed."""

from __future__ import annotations

import argparse
import random
import sys
import time

import torch
from hypothesis import HealthCheck, given, seed, settings

from .cases import Case, cases, check, counts

ROUND = 40  # models


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on from it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"seed {start}", flush=True)
    end, number = time.monotonic() + 60 * options.minutes, start

    @settings(max_examples=ROUND, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(case=cases)
    def holds(case: Case) -> None:
        if time.monotonic() < end:
            check(case)

    while time.monotonic() < end:
        try:
            seed(number)(holds)()
        except BaseException:
            print(f"failed with --seed {number}", file=sys.stderr)
            raise
        number += 1
        print(summary(), flush=True)
    return 0


def summary() -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
