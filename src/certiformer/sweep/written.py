"""What a sweep leaves in its folder for readers: the table, the curves, all figures, a page and a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..models.folder import write_bytes
from ..text import visible
from .compare import Comparison
from .figures import verdict
from .page import page
from .result import SweepResult

TABLE, CURVES, FIGURES, PAGE, PICTURE, PAIRS = (
    "table.csv",
    "curves.csv",
    "figures.json",
    "index.html",
    "curves.png",
    "pairs.csv",
)
PARQUET = "table.parquet"


def write(result: SweepResult, folder: Path, comparison: Comparison | None = None) -> list[Path]:
    """Write all that can be written here; Parquet needs pandas and pyarrow, the picture matplotlib."""
    rows = result.rows()
    content = {
        TABLE: _csv(rows),
        CURVES: _csv(curve_rows(result)),
        FIGURES: _figures(result).encode(),
        PAGE: page(result, comparison).encode(),
    }
    if comparison is not None:
        content[PAIRS] = pairs_csv(comparison)
    files = []
    for name, what in content.items():
        write_bytes(folder / name, what)
        files.append(folder / name)
    for name, made in ((PARQUET, _parquet), (PICTURE, _picture)):
        try:
            what = made(result)
        except ImportError:
            continue
        write_bytes(folder / name, what)
        files.append(folder / name)
    return files


def curve_rows(result: SweepResult) -> list[dict[str, Any]]:
    """The curves as a table: a row for each case, part of the sentences, and radius."""
    found = []
    for case in result.cases:
        every = result.figures(case.number)
        parts = [
            ("all", every.whole),
            *(("class", p) for p in every.by_class),
            *(("length", p) for p in every.by_length),
        ]
        for kind, part in parts:
            about: dict[str, Any] = {
                "model": case.model,
                "norm": case.norm,
                "words": case.words,
                "of": kind,
                "part": part.name,
            }
            for point in part.curve:
                counts = {k: v for k, v in asdict(point).items() if k != "eps"}
                shares = {"certified_share": point.least, "not_refuted_share": point.most}
                found.append(
                    {**about, "sentences": part.count, "right": part.right, "eps": point.eps, **counts, **shares}
                )
    return found


def pairs_csv(comparison: Comparison) -> bytes:
    """Two models side by side as CSV."""
    return _csv(pair_rows(comparison))


def pair_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The same sentences by two models, with both verdicts at every radius."""
    first, second = comparison.names
    found = []
    for a, b in comparison.rows:
        row = {"sentence": a["sentence"], "text": a["text"], "label": a["label"]}
        for name, one in ((first, a), (second, b)):
            row |= {f"{name} certified": one.get("certified"), f"{name} attacked": one.get("attacked")}
            row |= {f"{name} eps {pair.eps:g}": verdict(one, pair.eps) for pair in comparison.pairs}
        found.append(row)
    return found


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """A table as CSV: numbers to the last digit, nothing that a spreadsheet would take for a formula."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        shown = visible(value)
        return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown
    return "" if value is None else value


def _figures(result: SweepResult) -> str:
    every = [{"case": str(case), **asdict(result.figures(case.number))} for case in result.cases]
    about = {"manifest": result.manifest, "done": len(result.table), "total": result.total, "cases": every}
    return json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _parquet(result: SweepResult) -> bytes:
    import pyarrow  # noqa: F401

    out = io.BytesIO()
    result.to_pandas().to_parquet(out, index=False)
    return out.getvalue()


def _picture(result: SweepResult) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        result.plot(figure.subplots())
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=150, metadata={"Software": None})
    return out.getvalue()
