"""Measurements as text: a line a case, before against after, and the Markdown of the notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
BLOCK = re.compile(r"(?P<mark><!-- bench: (?P<file>[^\s]+)(?: (?P<suite>[\w-]+))? -->\n).*?(?=<!-- end -->)", re.DOTALL)
_COLUMNS = "{:<44} {:>9} {:>7} {:>9} {:>8} {:>8} {:>6} {:>6} {:>11} {:>9} {:>9}"
SHOWN = 4  # of the cases that were left out


def head() -> str:
    return _COLUMNS.format(
        "case", "seconds", "spread", "goal", "floor", "/floor", "sets", "evals", "mean", "words/s", "peak GiB"
    )


def line(row: Row) -> str:
    """One case on one line; what `mean` is of depends on the case: radii, or margins of a single evaluation."""
    case = row["case"]
    asked = case["asked"]
    return _COLUMNS.format(
        row["key"].split(": ", 1)[1][:44],
        seconds(row["seconds"]),
        f"{spread(row):.0%}",
        "" if asked is None else seconds(asked),
        seconds(row["floor"]),
        _ratio(row),
        row["sets"],
        f"{row['evaluations']:.1f}",
        f"{row['mean']:.5g}",
        f"{row['sets'] / row['seconds']:.4g}",
        gib(row["memory"]),
    ) + ("  random weights" if row["model"].startswith("random") and case["suite"].endswith("table") else "")


def seconds(value: float) -> str:
    return f"{value:.3g}"


def gib(memory: int | None) -> str:
    return "?" if memory is None else f"{memory / 2**30:.2f}"


def spread(row: Row) -> float:
    """How far the slowest repeat is above the fastest."""
    times = row["all_seconds"]
    return float(max(times) / min(times) - 1)


def _ratio(row: Row) -> str:
    return f"{row['seconds'] / row['floor']:.3g}" if row["floor"] else ""


def compared(before: Row, after: Row) -> str:
    """Seconds of the cases that both have, with the ratio; and whether they found the same."""
    old = {row["key"]: row for row in before["rows"]}
    lines = ["{:<58} {:>9} {:>9} {:>7} {:>12}".format("case", "before", "after", "faster", "mean differs")]
    for row in after["rows"]:
        if row["key"] not in old:
            continue
        was = old[row["key"]]
        change = abs(row["mean"] / was["mean"] - 1) if was["mean"] else abs(row["mean"])
        factor = was["seconds"] / row["seconds"]
        lines.append(
            f"{row['key'][:58]:<58} {seconds(was['seconds']):>9} {seconds(row['seconds']):>9} {factor:>6.2f}x "
            f"{change:>12.1e}"
        )
    differ = [
        f"{key}: {before['machine'].get(key)} before, {after['machine'].get(key)} now"
        for key in ("device", "torch", "threads")
        if before["machine"].get(key) != after["machine"].get(key)
    ]
    return "\n".join([*lines, *differ])


def filled(text: str, read: Callable[[str], Row | None]) -> str:
    """A page with the tables of each `<!-- bench: FILE [SUITE] -->` put before its `<!-- end -->`.

    `read` gives the document of a file, or None where it was not measured yet.
    """

    def block(found: re.Match[str]) -> str:
        document = read(found["file"])
        told = "Not measured yet.\n" if document is None else markdown(document, suite=found["suite"])
        return f"{found['mark']}\n{told}\n"

    return BLOCK.sub(block, text)


def markdown(document: Row, *, suite: str | None = None) -> str:
    """The tables of one document, or of one suite in it: one for each group."""
    about, settings = document["machine"], document["settings"]
    reached = document["reached"]
    parts = [
        f"{about['device']}, {about['threads']} threads, torch {about['torch']}, certiformer {about['certiformer']}, "
        f"{settings['dtype']}, {settings['norm']}, tolerance {settings['tolerance']:g}, median of up to "
        f"{settings['repeats']}, {document['created']}. Large matrices multiply at "
        f"{reached['flops'] / 1e12:.3g} TFLOP/s and move at {reached['bytes'] / 1e9:.4g} GB/s here; the floor is at "
        f"{document['rates']['flops'] / 1e12:.3g} TFLOP/s and {document['rates']['bytes'] / 1e9:.4g} GB/s "
        f"({document['rates']['source']})."
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in document["rows"]:
        if suite in (None, row["case"]["suite"]):
            groups.setdefault((row["case"]["suite"], row["case"]["group"]), []).append(row)
    for (name, group), rows in groups.items():
        parts.append(_table(group, rows) if name.endswith("table") else _growth(group, rows))
    for failed in document["failed"]:
        if suite is not None and not failed["key"].startswith(suite):
            continue
        parts.append(f"Not measured: {failed['key']} ({failed['why']}).")
    left = [key for key in document["left_out"] if suite is None or key.startswith(suite)]
    if left:
        named = "; ".join(left[:SHOWN]) + (f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        parts.append(f"Not measured for lack of time: {named}.")
    return "\n\n".join(parts) + "\n"


def _table(group: str, rows: list[Row]) -> str:
    """A row for each figure, a column for each model."""
    lines = [
        ["", *(row["case"]["name"] for row in rows)],
        ["---"] * (len(rows) + 1),
        *(
            [_told(what), *(f"{_stated(row, what):.3g} s" for row in rows)]
            for what in dict.fromkeys(s["what"].split(" of ")[0] for row in rows for s in row["case"]["stated"])
        ),
    ]
    if any(row["case"]["asked"] is not None for row in rows):
        lines.append(["goal", *(f"{row['case']['asked']:.3g} s" for row in rows)])
    lines += [
        [f"**reached**, `{group}`", *(f"**{row['seconds']:.3g} s**" for row in rows)],
        ["the same, seconds of all cores together", *(f"{row['processor']:.3g} s" for row in rows)],
        ["slowest over fastest run", *(f"{1 + spread(row):.2f}" for row in rows)],
        ["floor", *(f"{row['floor']:.3g} s" for row in rows)],
        ["reached / floor", *(_ratio(row) for row in rows)],
        ["operations", *(f"{row['flops'] / 1e12:.3g} TFLOP" for row in rows)],
        ["evaluations of each word", *(f"{row['evaluations']:.1f}" for row in rows)],
        ["mean radius", *(f"{row['mean']:.5g}" for row in rows)],
        ["peak memory", *(f"{gib(row['memory'])} GiB" for row in rows)],
        ["model", *(row["model"] for row in rows)],
        ["how", *(row["chosen"] for row in rows)],
    ]
    return _pipes(lines)


def _told(what: str) -> str:
    return what[0].upper() + what[1:]


def _stated(row: Row, what: str) -> float:
    return next(float(s["seconds"]) for s in row["case"]["stated"] if s["what"].split(" of ")[0] == what)


def _growth(group: str, rows: list[Row]) -> str:
    """A row for each case of an axis."""
    lines = [
        [group, "seconds", "floor", "seconds / floor", "sets", "words / s", "peak GiB"],
        ["---"] * 7,
        *(
            [
                row["case"]["name"],
                seconds(row["seconds"]),
                seconds(row["floor"]),
                _ratio(row),
                str(row["sets"]),
                f"{row['sets'] / row['seconds']:.4g}",
                gib(row["memory"]),
            ]
            for row in rows
        ),
    ]
    return _pipes(lines)


def _pipes(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
