"""From records to the rows of a table: figures here and figures published, contradictions, and notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from certiformer.attack.consistency import Contradiction, check_consistency
from certiformer.norms import norm_name

from . import published
from .cells import ways
from .protocol import Sentence, mean, spread
from .store import Record, Store
from .study import Group, Study, joined

Value = float | str | None
Source = Literal["here", "published"]


@dataclass(frozen=True)
class Row:
    """A line of a table. `values` has no entry where there is nothing to say, and None where work is unfinished."""

    labels: dict[str, str]
    source: Source
    values: dict[str, Value]
    wrong: frozenset[str] = frozenset()  # methods with a lower bound above an upper bound


@dataclass(frozen=True)
class Result:
    """A table, filled as far as the work goes."""

    study: Study
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...]
    missing: int  # cells that are not finished


@dataclass
class _Found:
    """The records of a row: method -> one for each sentence, None where unfinished."""

    group: Group
    records: dict[str, list[Record | None]] = field(default_factory=dict)

    @cached_property
    def common(self) -> tuple[frozenset[str], frozenset[int]]:
        """Methods, and the sentences that all of them have finished: every figure of a row is over these.

        The methods that are furthest come first; one that would leave no sentence is not among them.
        """
        finished = {
            way: frozenset(i for i, r in enumerate(some) if r is not None) for way, some in self.records.items()
        }
        kept: list[str] = []
        shared = frozenset(range(len(self.group.sentences)))
        for way, some in sorted(finished.items(), key=lambda item: -len(item[1])):
            if shared & some:
                kept.append(way)
                shared &= some
        return frozenset(kept), shared if kept else frozenset()

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences that figures are over."""
        return [s for i, s in enumerate(self.group.sentences) if i in self.common[1]]

    def used(self, way: str) -> list[Record] | None:
        """What a method has on these sentences; None where it is not finished on all of them."""
        ways, shared = self.common
        return [r for i, r in enumerate(self.records[way]) if r is not None and i in shared] if way in ways else None

    def counts(self, prefix: str = "") -> dict[str, Value]:
        return {f"{prefix}sentences": len(self.sentences), f"{prefix}sentences chosen": len(self.group.sentences)}


def collect(study: Study, store: Store) -> Result:
    """Everything that the store knows of a study."""
    found = [
        _Found(group, {way: [joined(cells, store) for cells in per] for way, per in group.cells.items()})
        for group in study.groups
    ]
    wrong = [contradictions(f, study) for f in found]
    rows = _word_rows(study, found) if study.table.name == "words" else _bound_rows(study, found, wrong, store)
    records = [
        {"data": f.group.subject.data, "sentence": s.index, "words": s.words, **r}
        for f in found
        for per in f.records.values()
        for s, r in zip(f.group.sentences, per, strict=True)
        if r is not None
    ]
    return Result(
        study=study,
        rows=tuple(rows),
        records=tuple(records),
        contradictions=tuple(record for some in wrong for _, record in some),
        notes=tuple(_notes(study, found)),
        missing=sum(cell.key not in store for cell in study.cells),
    )


def contradictions(found: _Found, study: Study) -> list[tuple[str, Contradiction]]:
    """Every method whose lower bound exceeds an upper bound somewhere, with the record of it."""
    lower = [way for way in study.ways if way.kind == "lower"]
    upper = [way for way in study.ways if way.kind == "upper"]
    wrong: list[tuple[str, Contradiction]] = []
    for proof in lower:
        for attack in upper:
            for sentence, low, high in zip(
                found.group.sentences, found.records[proof.name], found.records[attack.name], strict=True
            ):
                if low is None or high is None:
                    continue
                record = check_consistency(
                    positions=[tuple(p) for p in low["positions"]],
                    certified=low["radii"],
                    attacked=[math.inf if r is None else r for r in high["radii"]],
                    model=found.group.subject.folder,
                    norm=low["norm"],
                    inputs=sentence.ids,
                    method=proof.options["method"],
                    relaxation=proof.options["relaxation"],
                    dtype=low["dtype"],
                )
                if record is not None:
                    wrong.append((proof.name, record))
    return wrong


def _bound_rows(
    study: Study, found: Sequence[_Found], wrong: Sequence[list[tuple[str, Contradiction]]], store: Store
) -> Iterator[Row]:
    for f, bad in zip(found, wrong, strict=True):
        labels = _labels(study, f.group)
        accuracy = store.get(f.group.accuracy.key)
        values: dict[str, Value] = {"accuracy": None if accuracy is None else 100 * accuracy["accuracy"]}
        values |= f.counts()
        for way in study.ways:
            records = f.used(way.name)
            radii = None if records is None else spread([r["radii"] for r in records])
            values[f"{way.name} min"] = None if radii is None else radii.minimum
            values[f"{way.name} avg"] = None if radii is None else radii.average
            if study.table.timed:
                values[f"{way.name} seconds"] = None if records is None else mean([r["seconds"] for r in records])
        for title, above, below in study.table.ratios:
            values |= _ratio(title, f.used(above), f.used(below)) if {above, below} <= set(f.records) else {}
        yield Row(labels, "here", values, frozenset(name for name, _ in bad))
        printed = study.table.published.get((f.group.subject.folder, norm_name(f.group.norm)))
        if printed is not None:
            yield Row(labels, "published", _published(study, printed))


def _published(study: Study, printed: published.Figures) -> dict[str, Value]:
    values: dict[str, Value] = {} if printed.accuracy is None else {"accuracy": printed.accuracy}
    for way in study.ways:
        figures = printed.of(way.name)
        for part, figure in zip(("min", "avg", "seconds"), figures or (), strict=False):
            values[f"{way.name} {part}"] = figure
    for title, above, below in study.table.ratios:
        if (above, below) == ("paper", "upper") and printed.ratio is not None:
            values |= {f"{title} {part}": x for part, x in zip(("min", "avg"), printed.ratio, strict=True)}
    return values


def _ratio(title: str, above: list[Record] | None, below: list[Record] | None) -> dict[str, Value]:
    """The ratio of minima and of averages, over the positions where both have a radius."""
    if above is None or below is None:
        return {f"{title} min": None, f"{title} avg": None}
    pairs = [
        [(x, y) for x, y in zip(a["radii"], b["radii"], strict=True) if x is not None and y is not None]
        for a, b in zip(above, below, strict=True)
    ]
    x, y = (spread([[pair[k] for pair in some] for some in pairs]) for k in (0, 1))
    return {
        f"{title} {part}": a / b if math.isfinite(b) and b > 0 else math.inf
        for part, a, b in (("min", x.minimum, y.minimum), ("avg", x.average, y.average))
    }


def _labels(study: Study, group: Group) -> dict[str, str]:
    subject = group.subject
    norm = {"layer_norm": subject.layer_norm} if study.table.shows_layer_norm else {}
    return {"data": subject.data, "layers": str(subject.layers), **norm, "norm": norm_name(group.norm)}


def _word_rows(study: Study, found: Sequence[_Found]) -> Iterator[Row]:
    """For each method the score of the words it finds most and least important, and the words of the Yelp sentences."""
    for way in study.ways:
        values: dict[str, Value] = {}
        for f in found:
            values |= _word_values(f, f.used(way.name)) | f.counts(f"{f.group.subject.data} ")
        yield Row({"method": way.title}, "here", values)
        printed = published.WORDS.get(way.name)
        if printed is not None:
            both: dict[str, Value] = {
                "most": printed.most,
                "least": printed.least,
                "most words": " / ".join(printed.most_words),
                "least words": " / ".join(printed.least_words),
            }
            yield Row({"method": way.title}, "published", {k: v for k, v in both.items() if k in values})


def _word_values(found: _Found, records: list[Record] | None) -> dict[str, Value]:
    """The words themselves, or their average score where the treebank labels them."""
    named = found.group.subject.data == "yelp"
    values: dict[str, Value] = {}
    for k, part in enumerate(("most", "least")):
        column = f"{part} words" if named else part
        if records is None:
            values[column] = None
            continue
        picks = [(s, _extremes(r)[k]) for s, r in zip(found.sentences, records, strict=True)]
        values[column] = " / ".join(s.words[i] for s, i in picks) if named else mean([_score(s, i) for s, i in picks])
    return values


def _extremes(record: Record) -> tuple[int, int]:
    """The most and the least important word of a sentence, counted from 0. Of equals, the first."""
    if "slopes" in record:
        scale = [-s for s in record["slopes"]]
    else:
        scale = [math.inf if r is None else r / n for r, n in zip(record["radii"], record["lengths"], strict=True)]
    return scale.index(min(scale)), scale.index(max(scale))


def _score(sentence: Sentence, word: int) -> float:
    """How far the treebank's label of a word is from neutral; 0 where the data has no labels of words."""
    return float(abs(sentence.word_labels[word] - 2)) if sentence.word_labels is not None else 0.0


def _notes(study: Study, found: Sequence[_Found]) -> Iterator[str]:
    table = study.table
    per_model = {f.group.subject.folder: f.group for f in found}
    counts = sorted({len(g.sentences) for g in per_model.values()})
    longest = max((len(s.words) for g in per_model.values() for s in g.sentences), default=0)
    moved = "each word" if table.words == 1 else "each pair of words"
    most = min(table.longest, study.settings.max_length or table.longest)
    yield (
        f"Test sentences a model: {' or '.join(map(str, counts))}, at random with a fixed seed, classified correctly, "
        f"of at most {most} words (the longest has {longest}); {moved} of each."
    )
    partial = [f for f in found if 0 < len(f.sentences) < len(f.group.sentences)]
    if partial:
        used = mean([len(s.words) for f in partial for s in f.sentences])
        planned = mean([len(s.words) for f in partial for s in f.group.sentences])
        which = "a row" if table.name != "words" else "; ".join(map(_counted, partial)) + ": a figure"
        yield (
            f"Where some methods are not finished with all sentences, {which} is over those that all have finished: "
            f"{used:.0f} words long on average, where the chosen ones have {planned:.0f}."
        )
    s = spread([r["radii"] for f in found for r in f.used("upper") or ()])
    if s.missing:
        without = f"At {s.missing} of {s.positions} positions, all rows together, no word changes the verdict: "
        if table.name == "words":
            yield f"{without}to *upper (words)* these are the least important of their sentence."
        else:
            yield f"{without}these are not in *upper (words)*, and ratios to it are over the other positions."
    chosen: dict[str, int] = {}
    for f in found:
        for r in f.used("ours") or ():
            name = " and ".join(r["chosen"])
            chosen[name] = chosen.get(name, 0) + 1
    if chosen:
        listed = "; ".join(f"{name} ({n} result{'' if n == 1 else 's'})" for name, n in sorted(chosen.items()))
        yield f"*Ours* was, by what it costs: {listed}."
    if table.timed:
        yield from _speed(study, found)
    every = [r for f in found for way in f.records for r in f.used(way) or ()]
    machines = Counter(r["machine"] for r in every).most_common()
    if machines:
        (most_used, _), *others = machines
        but = "".join(f", {n} of {len(every)} results on {name}" for name, n in others)
        yield f"Computed in {' and '.join(sorted({r['dtype'] for r in every}))} on {most_used}{but}."


def _counted(found: _Found) -> str:
    return f"{found.group.subject.data.upper()}: {len(found.sentences)} of {len(found.group.sentences)} sentences"


def _speed(study: Study, found: Sequence[_Found]) -> Iterator[str]:
    """How much faster each method is than fully backward; seconds a sentence, all norms together."""

    def seconds(way: str) -> float | None:
        lists = [f.used(way) for f in found]
        whole = [r["seconds"] for some in lists if some is not None for r in some]
        return mean(whole) if whole and all(some is not None for some in lists) else None

    def printed(way: str) -> float | None:
        rows = [study.table.published.get((f.group.subject.folder, norm_name(f.group.norm))) for f in found]
        figures: list[Any] = [row.of(way) for row in rows if row is not None]
        return mean([f[2] for f in figures]) if figures and all(figures) else None

    slow, slow_printed, known = seconds("backward"), printed("backward"), ways()
    for way in study.ways:
        own = seconds(way.name)
        if way.kind != "lower" or way.name == "backward" or own is None or slow is None:
            continue
        theirs = printed(way.name)
        beside = f" (published: {slow_printed / theirs:.2f} times)" if theirs and slow_printed else ""
        yield (
            f"*{known[way.name].title}* takes {own:.2f} s a sentence on average over data and norms: {slow / own:.2f} "
            f"times as fast as *fully backward*{beside}."
        )
    yield "Seconds are of one sentence, all of its positions together, after a warm-up; the paper's are of its own GPU."
