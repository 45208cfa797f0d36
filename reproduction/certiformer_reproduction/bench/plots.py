"""How time and memory grow along each axis, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

AXES = ("tokens", "layers", "width", "moved words", "sentences")


def draw(documents: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """One PNG for each document with measurements along an axis: time, and memory below where it is known."""
    from certiformer.errors import InputError

    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'certiformer[report]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for document in documents:
        curves = _curves(document)
        axes = [a for a in AXES if any(a == axis for _, axis in curves)]
        if not axes:
            continue
        known = all(sum(bool(r["memory"]) for r in rows) > 1 for rows in curves.values())
        figure, panels = pyplot.subplots(
            1 + known,
            len(axes),
            figsize=(max(4.8, 3.1 * len(axes)), 5.6 if known else 3.3),
            squeeze=False,
            sharex="col",
        )
        for column, axis in enumerate(axes):
            for (method, which), rows in curves.items():
                if which == axis:
                    _curve(panels[0][column], panels[1][column] if known else None, method, rows)
            for panel in panels[:, column]:
                panel.set_xscale("log", base=2)
                panel.set_yscale("log")
                panel.grid(True, which="major", alpha=0.3)
            panels[-1][column].set_xlabel(axis)
            panels[-1][column].set_xticks(_ticks(curves, axis), [f"{v:g}" for v in _ticks(curves, axis)])
            panels[-1][column].tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        panels[0][0].set_ylabel("seconds")
        if known:
            panels[1][0].set_ylabel("peak GiB")
        panels[0][0].legend(fontsize=8)
        about = document["machine"]
        figure.suptitle(f"One evaluation on {about['device']}; dotted: the floor", fontsize=10)
        figure.tight_layout()
        path = folder / f"scaling-{'gpu' if document['settings']['device'].startswith('cuda') else 'cpu'}.png"
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        written.append(path)
    return written


def _curves(document: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Method and axis -> rows in order."""
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        case = row["case"]
        if case["suite"] == "scaling":
            method, _, axis = case["group"].partition(", ")
            curves.setdefault((method, axis), []).append(row)
    return {key: sorted(rows, key=lambda r: r["case"]["value"]) for key, rows in curves.items()}


def _ticks(curves: dict[tuple[str, str], list[dict[str, Any]]], axis: str) -> list[float]:
    return sorted({r["case"]["value"] for (_, a), rows in curves.items() if a == axis for r in rows})


def _curve(time: Any, memory: Any | None, method: str, rows: list[dict[str, Any]]) -> None:
    x = [row["case"]["value"] for row in rows]
    (drawn,) = time.plot(x, [row["seconds"] for row in rows], marker="o", markersize=4, label=method)
    time.plot(x, [row["floor"] for row in rows], linestyle=":", color=drawn.get_color())
    known = [(v, row["memory"] / 2**30) for v, row in zip(x, rows, strict=True) if row["memory"]]
    if memory is not None and known:
        memory.plot(*zip(*known, strict=True), marker="o", markersize=4, color=drawn.get_color())
