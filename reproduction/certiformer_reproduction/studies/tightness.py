"""How far the methods certify, against an attack: models x methods x norms.

    python -m certiformer_reproduction.studies.tightness MODEL [MODEL ...] --out FILE.json [--device cuda]

Each MODEL is a bundled name or a folder. Prints a Markdown table and writes JSON with settings, machine and versions.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

import certiformer as cf
from certiformer.questions.inputs import norm_name, norm_order

SENTENCES = ("lame , haphazard teen comedy .", "excellent acting and direction .")
WAYS: dict[str, dict[str, Any]] = {
    "ibp": {"method": "ibp", "relaxation": "paper"},
    "forward": {"method": "forward", "relaxation": "paper"},
    "backward-forward": {"method": "backward-forward", "relaxation": "paper"},
    "backward": {"method": "backward", "relaxation": "paper"},
    "backward-forward, tight": {"method": "backward-forward", "relaxation": "tight"},
    "backward, tight, fast": {"method": "backward", "relaxation": "tight", "budget": "fast"},
    "backward, tight": {"method": "backward", "relaxation": "tight", "budget": "tight"},
}
USUAL = ";".join(WAYS)
WAYS |= {
    f"backward, tight, {name}": {"method": "backward", "relaxation": "tight", **more}
    for name, more in (("4 pieces", {"splits": 4}), ("8 pieces", {"splits": 8}), ("30 steps", {"steps": 30}))
}


def synchronized(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(model: cf.Model, way: str, norm: str, sentences: list[str], device: str) -> dict[str, Any]:
    """Mean radius over all words of the sentences, its ratio to the attack's, seconds and peak memory."""
    certified: list[float] = []
    attacked: list[float] = []
    chosen: set[str] = set()
    seconds = calls = 0.0
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    for text in sentences:
        cf.radius(model, text, norm=norm, positions=[1], tolerance=0.5, device=device, **WAYS[way])  # capture, warm up
        start = synchronized(device)
        found = cf.radius(model, text, norm=norm, device=device, **WAYS[way])
        seconds += synchronized(device) - start
        calls += found.calls / len(sentences)
        chosen.add(found.chosen)
        certified += found.radii
        attacked += cf.attack(model, text, norm=norm, device=device).radii
    wrong = [i for i, (c, a) in enumerate(zip(certified, attacked, strict=True)) if c > a]
    mean = sum(certified) / len(certified)
    return {
        "model": model.name,
        "way": way,
        "norm": norm_name(norm_order(norm)),
        "radius": mean,
        "attack": sum(attacked) / len(attacked),
        "ratio": mean / (sum(attacked) / len(attacked)),
        "smallest": min(certified),
        "words": len(certified),
        "calls": calls,
        "seconds": seconds,
        "memory": torch.cuda.max_memory_allocated() if device.startswith("cuda") else None,
        "chosen": sorted(chosen),
        "violations": len(wrong),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/tightness.json"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--norm", default="2", help="comma-separated: 1,2,inf")
    parser.add_argument("--ways", default=USUAL, help="semicolon-separated, of: " + "; ".join(WAYS))
    parser.add_argument("--text", action="append", help="sentences instead of the two short ones")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further measurement after this long")
    options = parser.parse_args()
    sentences = options.text or list(SENTENCES)
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print("| model | norm | method | mean radius | of the attack's | evaluations | seconds | peak GiB |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        model = cf.load(name)
        for norm in options.norm.split(","):
            for way in options.ways.split(";"):
                if time.perf_counter() - begun > options.seconds:
                    continue
                row = measure(model, way, norm, sentences, options.device)
                rows.append(row)
                memory = "" if row["memory"] is None else f"{row['memory'] / 2**30:.2f}"
                print(
                    f"| {row['model']} | {row['norm']} | {way} | {row['radius']:.4g} | {row['ratio']:.3f} | "
                    f"{row['calls']:.1f} | {row['seconds']:.2f} | {memory} |"
                    + (f" {row['violations']} VIOLATIONS" if row["violations"] else ""),
                    flush=True,
                )
                machine = torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
                document = {
                    "machine": machine or platform.machine(),
                    "threads": torch.get_num_threads(),
                    "versions": {"certiformer": cf.__version__, "torch": torch.__version__},
                    "sentences": sentences,
                    "dtype": "float64",
                    "rows": rows,
                }
                options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
