"""A table as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

from certiformer.attack import versions
from certiformer.errors import InputError
from certiformer.models.folder import write_bytes

from .cells import ways
from .figures import Result, Row, Value
from .study import Settings, Study

SCHEMA = 1
UNFINISHED = "?"
_NORMS = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}
_DATA = {"sst": "SST", "yelp": "Yelp"}
_HEADS = {"data": "data", "layers": "N", "layer_norm": "LayerNorm", "norm": "norm", "method": "method"}


def write(result: Result, out: Path) -> list[Path]:
    """The three files of a table; what was there is replaced at once or not at all."""
    name = result.study.table.name
    content = {"md": markdown(result), "csv": table(result), "json": document(result)}
    written: list[Path] = []
    for suffix, text in content.items():
        path = out / f"{name}.{suffix}"
        try:
            write_bytes(path, text.encode())
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        written.append(path)
    return written


def command(name: str, settings: Settings) -> str:
    """The call that gives a table; no path of this machine is in it."""
    words = ["certiformer", "reproduce", "tables", name, "--data-dir", "DATA", "--models", "MODELS"]
    norms = None if settings.norms is None else [f"{p:g}" for p in settings.norms]
    for option, value in (
        ("--sentences", settings.sentences),
        ("--max-length", settings.max_length),
        ("--norms", norms and ",".join(norms)),
        ("--datasets", settings.datasets and ",".join(settings.datasets)),
        ("--only", settings.only and ",".join(settings.only)),
        ("--methods", settings.methods and ",".join(settings.methods)),
        ("--budget", settings.budget if settings.budget != "balanced" else None),
        ("--dtype", settings.dtype if settings.dtype != "float64" else None),
    ):
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)


def markdown(result: Result) -> str:
    """The table with its command and notes, to be read or to be put into a page."""
    study = result.study
    heads = list(_word_columns(result)) if study.table.name == "words" else list(_bound_columns(study))
    labels = list(result.rows[0].labels) if result.rows else []
    lines = ["```", command(study.table.name, study.settings), "```", ""]
    lines.append(_line([*(_HEADS[name] for name in labels), "", *(title for title, _ in heads)]))
    lines.append("|" + "---|" * (len(labels) + 1 + len(heads)))
    above: dict[str, str] = {}
    for row in result.rows:
        shown = _label_cells(row.labels, above)
        above = row.labels
        cells = [_join(row, parts) for _, parts in heads]
        mark = "*" if row.source == "published" else ""
        lines.append(_line([*shown, f"{mark}{row.source}{mark}", *(f"{mark}{c}{mark}" if c else "" for c in cells)]))
    lines.append("")
    lines += [f"- {note}" for note in notes(result)]
    return "\n".join(lines) + "\n"


def notes(result: Result) -> Iterator[str]:
    """What a reader must know, the gravest first."""
    for record in result.contradictions:
        yield f"**Wrong:** {record.model}, {record.method}, {record.relaxation}: {record.message}."
    if result.missing:
        yield f"`{UNFINISHED}`: not computed yet ({result.missing} of {len(result.study.cells)} cells are open)."
    if result.study.table.name == "words":
        yield "*most*, *least*: how far the treebank's label of the word is from neutral, averaged over SST sentences."
    else:
        third = " / seconds" if result.study.table.timed else ""
        yield f"Bounds are minimum / average over positions{third}, averaged over sentences; accuracy in percent."
    if any(g.subject.data == "yelp" for g in result.study.groups):
        yield "Yelp here is a set of review sentences, not the reviews that the paper used."
    yield from result.notes


def _bound_columns(study: Study) -> Iterator[tuple[str, tuple[str, ...]]]:
    parts = ("min", "avg", "seconds") if study.table.timed else ("min", "avg")
    yield "accuracy", ("accuracy",)
    yield "sentences", ("sentences", "sentences chosen")
    for way in study.ways:
        yield way.title, tuple(f"{way.name} {part}" for part in parts)
    names = {way.name for way in study.ways}
    for title, above, below in study.table.ratios:
        if above in names and below in names:
            yield title, (f"{title} min", f"{title} avg")


def _word_columns(result: Result) -> Iterator[tuple[str, tuple[str, ...]]]:
    titles = {"most": "most", "least": "least", "most words": "most, in Yelp", "least words": "least, in Yelp"}
    for name, title in titles.items():
        if any(name in row.values for row in result.rows):
            yield title, (name,)


def _label_cells(labels: dict[str, str], above: dict[str, str]) -> list[str]:
    """The labels of a row; from the left, those that the row above has too are left empty."""
    shown: list[str] = []
    same = True
    for name, value in labels.items():
        same = same and above.get(name) == value
        shown.append("" if same else _NORMS.get(value, _DATA.get(value, value)))
    return shown


def _join(row: Row, parts: tuple[str, ...]) -> str:
    if not any(part in row.values for part in parts):
        return ""
    if parts[0] == "sentences":
        used, chosen = (number(row.values[part], part) for part in parts)
        return used if used == chosen else f"{used} of {chosen}"
    text = " / ".join(number(row.values.get(part), part, row.source) for part in parts)
    flagged = any(part.startswith(f"{way} ") for part in parts for way in row.wrong)
    return f"**{text} (wrong)**" if flagged else text


def number(value: Value, column: str, source: str = "here") -> str:
    """A figure as a reader wants it."""
    if value is None or isinstance(value, str):
        return UNFINISHED if value is None else value.replace("|", "\\|")
    if "sentences" in column:
        return f"{value:.0f}"
    if column == "accuracy":
        return f"{value:.1f}"
    if column.endswith("seconds"):
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    if math.isinf(value):
        return "none"
    if " / " in column:  # a ratio
        return percent(value)
    if column in ("most", "least"):
        return f"{value:.2f}"
    return _radius(value, "" if source == "published" else column)


def _radius(value: float, column: str) -> str:
    """Three digits behind the point, two in all if small: never more than is proved, never less than an attack took.

    What is published is given without a column, and written as it was.
    """
    way = ways().get(column.rpartition(" ")[0])
    digits = 3 if value >= 0.0095 or value == 0 else 1 - math.floor(math.log10(value))
    rounding = {"lower": ROUND_FLOOR, "upper": ROUND_CEILING}.get(way.kind if way else "", ROUND_HALF_EVEN)
    kept = Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=rounding)
    return f"{kept:.3f}" if digits == 3 else f"{float(kept):.1e}"


def percent(value: float) -> str:
    """A ratio with two digits or more: 0.0053%, 4.5%, 111%; from 2 on how many times, 4.5x, 12x."""
    if value >= 1.995:
        return f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x"
    if value >= 0.0995:
        return f"{value:.0%}"
    digits = 1 - math.floor(math.log10(100 * value)) if value > 0 else 0
    return f"{100 * value:.{digits}f}%"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(result: Result) -> str:
    """The rows with every figure in full."""
    labels = list(dict.fromkeys(name for row in result.rows for name in row.labels))
    columns = list(dict.fromkeys(name for row in result.rows for name in row.values))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*labels, "source", *columns, "wrong"])
    for row in result.rows:
        values = ["" if row.values.get(name) is None else row.values[name] for name in columns]
        writer.writerow([*(row.labels[name] for name in labels), row.source, *values, " ".join(sorted(row.wrong))])
    return text.getvalue()


def document(result: Result) -> str:
    """Everything: figures, every radius behind them, settings, machine and versions."""
    study = result.study
    settings = study.settings
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "table": study.table.name,
        "title": study.table.title,
        "published": study.table.source,
        "command": command(study.table.name, settings),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "versions": versions(),
        "machines": sorted({r["machine"] for r in result.records}),
        "settings": {
            "dtype": settings.dtype,
            "budget": settings.budget,
            "words": study.table.words,
            "longest": min(study.table.longest, settings.max_length or study.table.longest),
            "sentences": {g.subject.folder: [s.index for s in g.sentences] for g in study.groups},
            "methods": {way.name: way.options for way in study.ways},
        },
        "titles": {name: way.title for name, way in ways().items()},
        "unfinished": result.missing,
        "contradictions": [record.to_json() for record in result.contradictions],
        "notes": list(notes(result)),
        "rows": [_plain(row) for row in result.rows],
    }
    head = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)[:-2]
    records = ",\n".join(json.dumps(r, ensure_ascii=False, allow_nan=False) for r in result.records)
    return f'{head},\n "records": [\n{records}\n]}}\n'  # a line a record


def _plain(row: Row) -> dict[str, Any]:
    values = {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in row.values.items()}
    return {**asdict(row), "values": values, "wrong": sorted(row.wrong)}
