"""The weight of the penalty for certificates, chosen by what it does: a few are trained, and all measured.

The front is what each weight costs in accuracy and brings in certified radius. Its knee is the smallest weight that
brings most of what can be had within the accuracy that may be lost. Every run keeps its folder, and is not repeated.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ..api import Certifier
from ..core.names import whole
from ..data import Dataset, Example
from ..errors import InputError
from ..models import load
from ..models.folder import CONFIG, write_bytes
from ..models.model import Model
from ..recipe import Config, FineTuning, Recipe
from . import checkpoint
from .card import read_facts
from .finetune import FineTuned, finetune
from .run import Progress
from .start import CollapsedError, may_begin
from .train import Trained, train

WEIGHTS = (0.0, 0.02, 0.1, 0.5)
SENTENCES, MOST_WORDS = 16, 10  # of dev: how many are certified, and how long they may be
TOLERANCE = 0.02  # of the search for a radius
MOST_OF_IT = 0.9  # what the knee brings of the best
POINT, TABLE, PICTURE = "point.json", "front.csv", "front.png"


@dataclass(frozen=True)
class Point:
    """One weight: what it cost and what it brought. A training that collapsed has neither."""

    weight: float
    dev_accuracy: float | None
    test_accuracy: float | None
    certified: float | None  # mean certified radius of one word in a text; 0 where the answer is wrong
    of_length: float | None  # the same, over the length of the word's embedding
    seconds: float  # of training
    measuring: float  # seconds of certifying
    folder: str


@dataclass(frozen=True)
class Front:
    """What every weight cost and brought, and which was chosen: its model is in `folder`."""

    folder: Path
    points: tuple[Point, ...]
    chosen: Point
    allowed_loss: float
    sentences: int

    def rows(self) -> list[dict[str, Any]]:
        """One row a weight, in plain values."""
        return [{**asdict(point), "chosen": point == self.chosen} for point in self.points]

    def to_csv(self) -> str:
        """The rows as a table."""
        out = io.StringIO()
        writer = csv.DictWriter(out, list(self.rows()[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return out.getvalue()

    def plot(self, axes: Any) -> Any:
        """Accuracy on dev over the certified radius, on axes of matplotlib; a line joins what no other weight beats."""
        places = {p: (p.of_length or 0.0, 100 * p.dev_accuracy) for p in self.points if p.dev_accuracy is not None}
        best = [
            a for a in places.values() if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in places.values())
        ]
        axes.plot(*zip(*places.values(), strict=True), "o", color="#4477aa")
        axes.plot(*zip(*sorted(best), strict=True), "-", color="#4477aa")
        axes.plot(*places[self.chosen], "o", color="#cc3311", label="chosen")
        axes.margins(0.1)
        for p, place in places.items():
            axes.annotate(f"{p.weight:g}", place, xytext=(4, 4), textcoords="offset points")
        axes.set_xlabel("certified radius over the embedding's length")
        axes.set_ylabel("accuracy on dev, %")
        axes.legend()
        return axes


def front(
    model: Config | str | os.PathLike[str],
    data: Dataset,
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    weights: Sequence[float] = WEIGHTS,
    sentences: int = SENTENCES,
    device: str = "auto",
    stored_as: Literal["float32", "float16"] = "float32",
    source: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Front:
    """Train with each weight, measure, and choose: the model at the knee is written to `out`, all in folders below it.

    `model` is the shape of a classifier to train from scratch, or a folder with a Hugging Face classifier (or
    "hf:NAME") to train on, which takes `FineTuning` as its recipe. The weight 0 is always among them: accuracy that is
    lost is lost in comparison with it, and `recipe.allowed_loss` says how much may be. A front that was stopped goes on
    where it was.
    """
    folder, recipe = Path(out), recipe or (Recipe() if isinstance(model, Config) else FineTuning())
    if not isinstance(model, Config) and not (isinstance(recipe, FineTuning) and stored_as == "float32"):
        raise InputError(f"model={os.fspath(model)!r}: expected a FineTuning as recipe, and stored_as='float32'")
    if recipe.certify:
        raise InputError(f"certify={recipe.certify:g}: a front tries weights of its own; leave it at 0")
    tried = sorted({0.0, *(replace(recipe, certify=float(w)).certify for w in weights)})
    if len(tried) < 2:
        raise InputError(f"weights={list(weights)!r}: expected at least one weight above 0")
    may_begin(data, folder)
    texts = _sample(data, sentences)
    run, begun = _training(model, data, device=device, stored_as=stored_as, source=source, progress=progress)
    points = []
    for weight in tried:
        own, one = folder / f"weight-{weight:g}", replace(recipe, certify=weight)
        written = [e.written for e, _ in texts]
        settings = json.dumps([begun, asdict(one), data.name, len(data.train), stored_as, written])
        point = _kept(own, settings)
        if point is None:
            point = _made(own, one, texts, run)
            write_bytes(own / POINT, json.dumps({"settings": settings, "point": asdict(point)}).encode())
        points.append(point)
    found = Front(folder, tuple(points), knee(points, recipe.allowed_loss), recipe.allowed_loss, len(texts))
    _write(found)
    return found


def _training(
    model: Config | str | os.PathLike[str], data: Dataset, *, stored_as: Any, source: Sequence[str] | None, **given: Any
) -> tuple[Callable[..., Trained | FineTuned], Any]:
    """How a model is trained with a recipe into a folder, and what it begins from."""
    if isinstance(model, Config):
        return partial(train, model, data, stored_as=stored_as, source=source, **given), asdict(model)
    return partial(finetune, model, data, **given), load(model).hashes()["weights"]


def knee(points: Sequence[Point], allowed_loss: float) -> Point:
    """Of the weights that lose no more accuracy than is allowed, the smallest that brings most of what can be had."""
    plain = next(p for p in points if p.weight == 0)
    least = (plain.dev_accuracy or 0.0) - allowed_loss
    within = [p for p in points if p.dev_accuracy is not None and p.dev_accuracy >= least]
    best = max(p.of_length or 0.0 for p in within)
    return next(p for p in sorted(within, key=lambda p: p.weight) if (p.of_length or 0.0) >= MOST_OF_IT * best)


def _sample(data: Dataset, count: int) -> list[tuple[Example, int]]:
    """Short texts of dev, each with one of its words."""
    whole("sentences", count, least=1)
    draw = random.Random(0)
    short = [e for e in data.dev if 1 <= len(e.words) <= MOST_WORDS]
    if not short:
        raise InputError(f"data {data.name!r}: no text of its dev part has at most {MOST_WORDS} words to certify")
    return [(e, draw.randrange(len(e.words))) for e in draw.sample(short, min(count, len(short)))]


def _kept(folder: Path, settings: str) -> Point | None:
    """What was measured of a run before, None where it was not; that of another front is an error."""
    path = folder / POINT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        point, before = Point(**found["point"]), found["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a point of a front ({error}): remove {folder} to train it again") from None
    if before != settings:
        raise InputError(f"{folder}: belongs to a front with other settings or data: use another folder, or remove it")
    return point


def _made(
    folder: Path, recipe: Recipe, texts: Sequence[tuple[Example, int]], run: Callable[..., Trained | FineTuned]
) -> Point:
    """Train with one weight, and measure."""
    try:
        if not (folder / CONFIG).exists() or (folder / checkpoint.FILE).exists():
            run(folder, recipe=recipe)
    except CollapsedError:
        return Point(recipe.certify, None, None, None, None, 0.0, 0.0, folder.name)
    model = load(folder)
    facts = {**model.facts, **read_facts(folder)}
    if facts.get("recipe", {}).get("certify") != recipe.certify:
        raise InputError(f"{folder}: holds a model that was trained otherwise: use another folder, or remove it")
    started = time.perf_counter()
    certifier = Certifier(model, tolerance=TOLERANCE)
    radii, shares = [], []
    for example, word in texts:
        found = certifier.radius(example.written, positions=[_place(model, example, word)], norm=recipe.certify_norm)
        right = found.label == example.label
        radii.append(found.radii[0] if right else 0.0)
        shares.append(found.normalized[0] if right else 0.0)
    return Point(
        weight=recipe.certify,
        dev_accuracy=facts["dev_accuracy"],
        test_accuracy=facts["test_accuracy"],
        certified=fmean(radii),
        of_length=fmean(shares),
        seconds=facts["seconds"],
        measuring=round(time.perf_counter() - started, 1),
        folder=folder.name,
    )


def _place(model: Model, example: Example, word: int) -> int:
    """The position of a word; of a text that is split into other pieces, that of the piece of this number."""
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(example.written).ids
    places = [i for i, token in enumerate(ids) if token not in model.special]
    return places[word % len(places)]


def _write(found: Front) -> None:
    """The table, the picture where matplotlib is there, and the chosen model in the folder of the front itself."""
    write_bytes(found.folder / TABLE, found.to_csv().encode())
    with suppress(ImportError):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        found.plot(figure.subplots())
        figure.savefig(found.folder / PICTURE, dpi=150, metadata={"Software": None})
    for file in sorted((found.folder / found.chosen.folder).iterdir()):
        if file.name not in (POINT, CONFIG):
            shutil.copyfile(file, found.folder / file.name)
    write_bytes(
        found.folder / CONFIG, (found.folder / found.chosen.folder / CONFIG).read_bytes()
    )  # last: it is whole now
