"""`python -m fuzz --minutes 10`: random models until the time is up; the first that fails is made small and printed."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from .cases import Case, cases, check, counts

ROUND = 40  # models
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on from it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"seed {start}", flush=True)
    end, number = time.monotonic() + 60 * options.minutes, start

    failed: list[Case] = []

    @settings(max_examples=ROUND, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
    @given(case=cases)
    def holds(case: Case) -> None:
        if time.monotonic() > end and not failed:  # what has failed is made small, however long it takes
            return
        try:
            check(case)
        except Exception:
            failed.append(case)
            raise

    while time.monotonic() < end:
        try:
            seed(number)(holds)()
        except Exception:
            traceback.print_exc()
            print(f"failed with --seed {number}; made small:\n{failed[-1]}", file=sys.stderr)
            return 1
        number += 1
        print(summary(), flush=True)
    return 0


def summary() -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
