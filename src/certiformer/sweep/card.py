"""What a sweep measured, for a model card on Hugging Face: a section of README.md, and `.eval_results/*.yaml`.

Nothing is measured here, and nothing is written of a sweep that is not finished.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..models import load
from ..models.folder import write_bytes
from ..numbers import down, written
from .figures import Figures, Point
from .result import CaseName, SweepResult

BEGIN, END = "<!-- certiformer: begin -->", "<!-- certiformer: end -->"
MEANING = (
    "*Certified accuracy* is proved: the share of sentences that the model gets right and for which no such change",
    "alters the answer. *Not refuted* is the share that is neither wrong nor refuted by an attack. The accuracy under",
    "the worst changes lies between the two. Embeddings move freely in the ball: this says nothing about synonyms,",
    "insertions or typing errors.",
)
RESULTS = Path(".eval_results") / "certiformer.yaml"
SECTION = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END) + r"\n?", re.DOTALL)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the Hugging Face hub: its data set, tasks that its `eval.yaml` defines, and the radius meant."""

    dataset_id: str
    task_id: str | None = None  # of the plain accuracy
    certified_task_id: str | None = None  # of the certified accuracy
    at: float | None = None
    source_url: str | None = None


@dataclass(frozen=True)
class Measured:
    """The finished cases of one model in a sweep."""

    result: SweepResult
    cases: tuple[CaseName, ...]

    @staticmethod
    def of(result: SweepResult, model: str | None = None) -> Measured:
        """Those of a model, which has to be named where there are several; refused where they prove nothing yet."""
        names = list(dict.fromkeys(case.model for case in result.cases))
        if model is None and len(names) > 1:
            raise InputError(f"the sweep is of several models, {', '.join(names)}: give one, as in --model {names[0]}")
        if model is not None and model not in names:
            raise InputError(f"--model {model}: not in this sweep; there is {', '.join(names)}")
        if not result.complete:
            done = f"{len(result.table):,} of {result.total:,} sentences"
            raise InputError(f"the sweep is not finished ({done}): run its command again, then write the card")
        if result.contradictions:
            raise InputError(f"{result.contradictions} rows hold a contradiction between proof and attack: not written")
        return Measured(result, tuple(case for case in result.cases if case.model == (model or names[0])))

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the weights, the structure and the vocabulary that were measured."""
        about = next(m for m in self.result.manifest["models"] if m["name"] == self.cases[0].model)
        return {name: str(about[name]) for name in ("weights", "structure", "vocabulary")}

    def figures(self, case: CaseName) -> Figures:
        return self.result.figures(case.number)


def section(measured: Measured) -> str:
    """The section of a model card, between two comments by which it is found again."""
    first = measured.figures(measured.cases[0]).whole
    parts = [
        BEGIN,
        "## Certified robustness",
        "",
        f"Accuracy without any change: **{first.accuracy:.2%}** ({first.right:,} of {first.count:,} sentences).",
    ]
    for case in measured.cases:
        parts += ["", *_case(measured, case)]
    return "\n".join([*parts, "", *MEANING, "", *_origin(measured), END, ""])


def _origin(measured: Measured) -> list[str]:
    """What was measured on, and with what."""
    about = measured.result.manifest
    data = about["data"]
    return [
        f"Measured with certiformer {about['certiformer']} on {data['name']}, {data['split']} part,",
        f"{data['sentences']:,} sentences (SHA-256 `{data['sha256'][:16]}`);",
        f"SHA-256 of the weights: `{measured.hashes['weights'][:16]}`.",
    ]


def _case(measured: Measured, case: CaseName) -> list[str]:
    attacked = measured.result.manifest["attack"] is not None
    moved = "any one word" if case.words == 1 else f"any {case.words} words at once, each"
    rows = [f"Embeddings of {moved} moved by up to a radius in {case.norm}:", ""]
    rows += ["| radius | certified accuracy | not refuted |" if attacked else "| radius | certified accuracy |"]
    rows += ["|---|---|---|" if attacked else "|---|---|"]
    for point in measured.figures(case).whole.curve:
        cells = [written(point.eps), _percent(point.least), *([f"{point.most:.2%}"] if attacked else [])]
        rows.append(f"| {' | '.join(cells)} |")
    return [
        *rows,
        "",
        f"Mean certified radius over the sentences that are right: {down(measured.figures(case).mean_radius)}.",
    ]


def _percent(share: float) -> str:
    """A share that is proved, rounded down."""
    return f"{math.floor(share * 10_000) / 100:.2f}%"


def entries(measured: Measured, benchmark: Benchmark) -> str:
    """The YAML of `.eval_results`: an entry for each task that was named, with percentages."""
    found = []
    figures, case = measured.figures(measured.cases[0]), measured.cases[0]
    told = f"{figures.whole.count:,} sentences, certiformer {measured.result.manifest['certiformer']}"
    if benchmark.task_id is not None:
        found.append((benchmark.task_id, round(100 * figures.whole.accuracy, 2), f"accuracy; {told}"))
    if benchmark.certified_task_id is not None:
        point = _at(figures.whole.curve, benchmark.at)
        words = "1 word" if case.words == 1 else f"{case.words} words"
        notes = f"certified accuracy, proved: {words} moved by up to {written(point.eps)} in {case.norm}; {told}"
        found.append((benchmark.certified_task_id, math.floor(10_000 * point.least) / 100, notes))
    if not found:
        raise InputError(f"dataset_id={benchmark.dataset_id!r}: name the task too, --task-id or --certified-task-id")
    return "".join(_entry(benchmark, *one) for one in found)


def _entry(benchmark: Benchmark, task: str, value: float, notes: str) -> str:
    lines = [
        "- dataset:",
        f"    id: {json.dumps(benchmark.dataset_id)}",
        f"    task_id: {json.dumps(task)}",
        f"  value: {value}",
    ]
    if benchmark.source_url is not None:
        lines += ["  source:", f"    url: {json.dumps(benchmark.source_url)}"]
    return "\n".join([*lines, f"  notes: {json.dumps(notes)}", ""])


def _at(curve: Sequence[Point], eps: float | None) -> Point:
    """The point of a curve at a radius, or its only one."""
    known = ", ".join(written(point.eps) for point in curve)
    if eps is None and len(curve) == 1:
        return curve[0]
    found = next((point for point in curve if point.eps == eps), None)
    if found is None:
        raise InputError(f"at={eps}: the sweep has the radii {known}; choose one, as in --at {written(curve[0].eps)}")
    return found


def write(measured: Measured, folder: Path, benchmark: Benchmark | None = None) -> list[Path]:
    """Put the section into README.md of a model folder, in the place of an earlier one, and write the YAML if asked."""
    if not folder.is_dir():
        raise InputError(f"--out {folder}: no such folder; expected that of the model")
    if (folder / "config.json").is_file():
        there = load(folder).hashes()
        if other := [name for name, value in measured.hashes.items() if there[name] != value]:
            raise InputError(f"--out {folder}: {', '.join(other)} there are not those that the sweep measured")
    page = folder / "README.md"
    before = page.read_text(encoding="utf-8") if page.is_file() else f"# {measured.cases[0].model}\n"
    made = section(measured)
    after = SECTION.sub(lambda _: made, before, count=1) if SECTION.search(before) else f"{before.rstrip()}\n\n{made}"
    content = {page: after}
    if benchmark is not None:
        content[folder / RESULTS] = entries(measured, benchmark)
    for path, text in content.items():
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, text.encode())
    return list(content)
