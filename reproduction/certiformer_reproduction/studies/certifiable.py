"""What training for certificates brought: accuracy, certified and attacked radius of models, in Markdown.

certiformer reproduce certifiable --data sst --data-dir DATA --out results/certifiable MODEL [MODEL ...]

One word of each of so many test sentences of at most 16 words, both drawn at random and the same for every model. Radii
are means over the sentences that the model gets right, and the ratio over those of them in which the attack finds
something; a sentence counts as certified at a share of the length when its
answer is right and its radius is at least that share of the length of the word's embedding. What is measured is kept
in a file a model, a line a sentence, and not measured again by the same call.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import certiformer as cf
from certiformer.data import Dataset, Example, load_data
from certiformer.errors import InputError
from certiformer.options import Options
from certiformer.training import evaluate

Row = dict[str, Any]
MOST_WORDS = 16
SHARES = (0.05, 0.1)  # of the length of the embedding
HEAD = (
    ("model", "penalty", "test", "sentences", "certified", "attacked")
    + ("certified / attacked", "of the length")
    + tuple(f"certified accuracy at {share:.0%}" for share in SHARES)
    + ("training",)
)


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    models: tuple[str, ...]
    out: Path
    data: str = "sst"
    data_dir: Path | None = None
    sentences: int = 100
    norm: float = 2.0
    options: Options = field(default_factory=lambda: Options(tolerance=0.02))


def drawn(data: Dataset, count: int) -> list[tuple[Example, int]]:
    """Short test sentences in a random order, each with one of its words; more of them begin with the same ones."""
    short = [e for e in data.test if 1 <= len(e.words) <= MOST_WORDS]
    if not short:
        raise InputError(f"data {data.name!r}: no test text of at most {MOST_WORDS} words")
    draw = random.Random(0)
    return [(e, draw.randrange(len(e.words))) for e in draw.sample(short, len(short))][:count]


def measured(certifier: cf.Certifier, example: Example, word: int, norm: float) -> Row:
    """One word of one sentence."""
    row: Row = {"text": example.written, "word": word, "label": example.label, "norm": norm}
    found = certifier.radius(example.written, positions=[word + 1], norm=norm)
    if found.label != example.label:
        return row | {"right": False}
    attacked = certifier.attack(example.written, positions=[word + 1], norm=norm)
    (radius,), (share,), (away,) = found.radii, found.normalized, attacked.radii
    if radius > away:
        raise AssertionError(f"{example.written!r}, word {word}: certified {radius}, attacked {away}")
    told = {"certified": radius, "of_length": share, "attacked": away, "seconds": found.seconds, "calls": found.calls}
    return row | {"right": True, "chosen": found.chosen} | told


def study(settings: Settings, say: Callable[[str], None] = print) -> list[Row]:
    """Measure what is missing, then say a line of the table for each model."""
    data = load_data(settings.data, data_dir=settings.data_dir)
    texts = drawn(data, settings.sentences)
    settings.out.mkdir(parents=True, exist_ok=True)
    opened = [(Path(name).name, cf.load(name)) for name in settings.models]
    say(f"| {' | '.join(HEAD)} |")
    say(f"|{'---|' * len(HEAD)}")
    rows = []
    for name, model in opened:
        kept = settings.out / f"{name}.jsonl"
        found = _kept(kept, texts, settings.norm)
        if len(found) < len(texts):
            certifier = cf.Certifier(model, settings.options)
            with kept.open("a", encoding="utf-8") as file:
                for example, word in texts[len(found) :]:
                    found.append(measured(certifier, example, word, settings.norm))
                    file.write(json.dumps(found[-1]) + "\n")
                    file.flush()
        rows.append(summary(name, model, data, found))
        say(line(rows[-1]))
    return rows


def _kept(path: Path, texts: Sequence[tuple[Example, int]], norm: float) -> list[Row]:
    """What was measured before: a whole number of lines, of the same sentences in the same order."""
    if not path.is_file():
        return []
    written = path.read_text(encoding="utf-8")
    whole = written[: written.rfind("\n") + 1]
    if whole != written:  # the last line was cut by a kill
        path.write_text(whole, encoding="utf-8")
    found: list[Row] = [json.loads(each) for each in whole.splitlines()]
    asked = [(e.written, word, norm) for e, word in texts]
    if any((row["text"], row["word"], row["norm"]) != ask for row, ask in zip(found, asked, strict=False)):
        raise InputError(f"{path}: holds measurements of other sentences: use another folder, or remove it")
    return found[: len(texts)]


def summary(name: str, model: cf.Model, data: Dataset, found: Sequence[Row]) -> Row:
    """One row of the table."""
    right = [row for row in found if row["right"]]
    if not right:
        raise InputError(f"{name}: gets none of {len(found)} sentences right")
    facts = model.facts
    found_one = [row for row in right if math.isfinite(row["attacked"])]
    attacked = fmean(row["attacked"] for row in found_one) if found_one else math.inf
    return {
        "model": name,
        "facts": facts,
        "test": evaluate(model, data.test, device="cpu"),
        "sentences": len(found),
        "certified": fmean(row["certified"] for row in right),
        "attacked": attacked,
        "ratio": fmean(row["certified"] for row in found_one) / attacked if found_one else 0.0,
        "of_length": fmean(row["of_length"] for row in right),
        "accuracies": [sum(row["of_length"] >= share for row in right) / len(found) for share in SHARES],
    }


def line(row: Row) -> str:
    """A row in Markdown."""
    facts = row["facts"]
    seconds = facts.get("seconds")
    cells = [
        row["model"],
        f"{facts.get('recipe', {}).get('certify', 0.0):g}",
        f"{row['test']:.2%}",
        str(row["sentences"]),
        f"{row['certified']:.4g}",
        f"{row['attacked']:.4g}",
        f"{row['ratio']:.3f}",
        f"{row['of_length']:.3f}",
        *(f"{share:.0%}" for share in row["accuracies"]),
        "" if seconds is None else f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"
