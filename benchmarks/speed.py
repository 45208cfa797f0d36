"""How long the certified radii of all words of one sentence take: models x methods.

    python benchmarks/speed.py MODEL [MODEL ...] --out results/speed.json [--device cuda] [--repeats 3]

Each MODEL is a bundled name or a folder. Every cell is the median of a few searches after one that warms up. Prints a
Markdown table and writes JSON with settings, machine and versions.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import certiformer as cf
from certiformer.inputs import norm_name, norm_order
from tightness import WAYS, synchronized

SENTENCE = "the film is a funny , moving and beautifully acted story of friendship and love ."  # 16 words
COMPARED = ("backward-forward", "backward, tight, fast", "backward, tight")


def measure(
    model: cf.Model, way: str, norm: str, sentence: str, device: str, *, repeats: int, tolerance: float
) -> dict[str, Any]:
    """Seconds of a search over all words, with what it found, its evaluations and its peak memory."""
    options = {"norm": norm, "device": device, **WAYS[way]}
    cf.radius(model, sentence, tolerance=0.5, **options)  # capture, and every shape once
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    seconds: list[float] = []
    for _ in range(repeats):
        start = synchronized(device)
        found = cf.radius(model, sentence, tolerance=tolerance, **options)
        seconds.append(synchronized(device) - start)
    return {
        "model": model.name,
        "way": way,
        "norm": norm_name(norm_order(norm)),
        "seconds": median(seconds),
        "all_seconds": seconds,
        "tokens": len(found.tokens),
        "words": len(found.radii),
        "radius": sum(found.radii) / len(found.radii),
        "calls": found.calls,
        "memory": torch.cuda.max_memory_allocated() if device.startswith("cuda") else None,
        "chosen": found.chosen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/speed.json"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--norm", default="2", help="1, 2 or inf")
    parser.add_argument("--ways", default=";".join(COMPARED), help="semicolon-separated, of: " + "; ".join(WAYS))
    parser.add_argument("--text", default=SENTENCE, help="another sentence")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative width to which a search closes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further measurement after this long")
    options = parser.parse_args()
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print("| model | method | seconds | words | evaluations of each | mean radius | peak GiB |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        model = cf.load(name)
        for way in options.ways.split(";"):
            if time.perf_counter() - begun > options.seconds:
                continue
            row = measure(
                model,
                way,
                options.norm,
                options.text,
                options.device,
                repeats=options.repeats,
                tolerance=options.tolerance,
            )
            rows.append(row)
            memory = "" if row["memory"] is None else f"{row['memory'] / 2**30:.2f}"
            print(
                f"| {row['model']} | {way} | {row['seconds']:.3f} | {row['words']} | {row['calls']:.1f} | "
                f"{row['radius']:.4g} | {memory} |",
                flush=True,
            )
            machine = torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
            document = {
                "machine": machine or platform.machine(),
                "threads": torch.get_num_threads(),
                "versions": {"certiformer": cf.__version__, "torch": torch.__version__},
                "sentence": options.text,
                "tolerance": options.tolerance,
                "repeats": options.repeats,
                "dtype": "float64",
                "rows": rows,
            }
            options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
