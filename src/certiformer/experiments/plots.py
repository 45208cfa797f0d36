"""Three plots from the written tables: radius by layers, radius by word, and what time buys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError
from .protocol import mean, spread

Json = dict[str, Any]
COLOURS = {
    "gradient": "#888888",
    "upper": "#bbbbbb",
    "ibp": "#c44e52",
    "forward": "#dd8452",
    "backward": "#8172b3",
    "paper": "#4c72b0",
    "ours-quick": "#8fc79a",
    "ours": "#2a8c4a",
    "ours-steps": "#145c2c",
}
EXAMPLES = 4
DATA = {"sst": "SST", "yelp": "Yelp"}


def draw(out: Path) -> Iterator[Path]:
    """Draw what the tables in `out` allow; the files that were written."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'certiformer[report]'") from None
    matplotlib.use("Agg")
    main, ablation = _read(out, "main"), _read(out, "ablation")
    if main is None and ablation is None:
        raise InputError(f"{out} holds neither main.json nor ablation.json: run the tables first")
    images = out / "images"
    images.mkdir(exist_ok=True)
    drawn: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("layers", lambda: main and layers(main)),
        ("words", lambda: main and words(main)),
        ("time", lambda: time([t for t in (ablation, main) if t is not None])),
    )
    for name, figure in drawn:
        made = figure()
        if made is not None:
            path = images / f"{name}.png"
            made.savefig(path, dpi=110, bbox_inches="tight")
            yield path


def _read(out: Path, name: str) -> Json | None:
    path = out / f"{name}.json"
    if not path.is_file():
        return None
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def _axes(count: int, width: float, height: float, **more: Any) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * min(count, 2), height * ((count + 1) // 2)), layout="constrained")
    grid = figure.subplots((count + 1) // 2, min(count, 2), squeeze=False, **more)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    for ax in axes:
        _plain(ax)
    return figure, axes[:count]


def _plain(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    ax.set_axisbelow(True)


def _legend(figure: Any, axes: Iterable[Any], **more: Any) -> None:
    handles = {label: h for ax in axes for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), fontsize=8, frameon=False, **more)


def layers(main: Json) -> Any:
    """Average radius against the number of layers, in l2, a column a dataset; IBP, far below, in a panel of its own."""
    from matplotlib.figure import Figure

    rows = [r for r in main["rows"] if r["labels"]["norm"] == "l2"]
    datasets = list(dict.fromkeys(r["labels"]["data"] for r in rows))
    if not datasets:
        return None
    figure = Figure(figsize=(3.6 * len(datasets) + 2.2, 5.2), layout="constrained")
    grid = figure.subplots(2, len(datasets), squeeze=False, sharex=True, sharey="row", height_ratios=(2, 1))
    for k, data in enumerate(datasets):
        for ax, ways in zip(grid[:, k], (("gradient", "upper", "ours", "paper"), ("ibp",)), strict=True):
            _plain(ax)
            for way in ways:
                for source, style in (("here", "o-"), ("published", ".:")):
                    points = [
                        (int(r["labels"]["layers"]), r["values"][f"{way} avg"])
                        for r in rows
                        if (r["labels"]["data"], r["source"]) == (data, source) and r["values"].get(f"{way} avg")
                    ]
                    if points:
                        title = main["titles"][way] + (", published" if source == "published" else "")
                        ax.plot(*zip(*points, strict=True), style, color=COLOURS[way], label=title, linewidth=1.8)
        grid[0, k].set_ylim(bottom=0)
        grid[0, k].set_title(DATA[data], fontsize=11)
        grid[1, k].set_yscale("log")
        grid[1, k].set_xticks(sorted({int(r["labels"]["layers"]) for r in rows}))
        grid[1, k].set_xlabel("layers")
    grid[0, 0].set_ylabel("ℓ2 radius, average over positions")
    grid[1, 0].set_ylabel("the same, log")
    _legend(figure, grid.flat, loc="outside right center")
    return figure


def words(main: Json) -> Any:
    """Radius of every word of a few sentences of the deepest SST model: certified by two methods, and attacked."""
    wanted = ("paper", "ours", "gradient")
    records = [r for r in main["records"] if r["norm"] == "l2" and r["way"] in wanted]
    by_sentence: dict[tuple[str, int], Json] = {}
    for r in records:
        by_sentence.setdefault((r["model"], r["sentence"]), {})[r["way"]] = r
    whole = {k: v for k, v in by_sentence.items() if len(v) == len(wanted)}
    models = sorted({model for model, _ in whole}, key=lambda m: (m.startswith("sst"), m))
    if not models:
        return None
    fit = [(k, v) for k, v in whole.items() if k[0] == models[-1]]
    fit.sort(key=lambda item: (abs(len(item[1]["ours"]["words"]) - 8), item[0][1]))  # about eight words read well
    some = fit[:EXAMPLES]
    figure, axes = _axes(len(some), 5.4, 3.2)
    for ax, (_, found) in zip(axes, some, strict=True):
        tokens = found["ours"]["words"]
        at = range(len(tokens))
        attacked = [r or 0.0 for r in found["gradient"]["radii"]]
        ax.bar(at, attacked, width=0.84, color="#e2e2e2", label="attacked: no proof can reach further")
        ax.bar(
            [i - 0.2 for i in at],
            found["paper"]["radii"],
            width=0.38,
            color=COLOURS["paper"],
            label="proved, paper's method",
        )
        ax.bar([i + 0.2 for i in at], found["ours"]["radii"], width=0.38, color=COLOURS["ours"], label="proved, ours")
        ax.set_xticks(list(at), tokens, rotation=40, ha="right", fontsize=8)
        ax.set_title(f"{models[-1]} says {('negative', 'positive')[found['ours']['label']]}", fontsize=9, loc="left")
    for ax in axes[::2]:
        ax.set_ylabel("ℓ2 radius")
    _legend(figure, axes, loc="outside upper center", ncols=3)
    return figure


def time(tables: list[Json]) -> Any:
    """Average radius against seconds a sentence, l2, a panel a model."""
    panels: dict[str, dict[str, tuple[float, float]]] = {}
    titles: dict[str, str] = {}
    for table in tables:
        titles |= table["titles"]
        proofs = [name for name, options in table["settings"]["methods"].items() if "relaxation" in options]
        for way in proofs:
            if way == "ibp":  # a thousandth of the others
                continue
            groups: dict[str, list[Json]] = {}
            for r in table["records"]:
                if r["way"] == way and r["norm"] == "l2" and r["data"] == "sst":
                    groups.setdefault(r["model"], []).append(r)
            for model, found in groups.items():
                if len(found) == len(table["settings"]["sentences"][model]):
                    radius = spread([r["radii"] for r in found]).average
                    panels.setdefault(model, {})[way] = (mean([r["seconds"] for r in found]), radius)
    panels = {model: ways for model, ways in panels.items() if len(ways) > 1}
    if not panels:
        return None
    figure, axes = _axes(len(panels), 4.0, 3.2)
    for ax, (model, found_ways) in zip(axes, panels.items(), strict=True):
        ax.plot(*zip(*_front(list(found_ways.values())), strict=True), color="#cccccc", linewidth=1, zorder=1)
        for way, (seconds, radius) in found_ways.items():
            ax.scatter(seconds, radius, color=COLOURS[way], s=44, zorder=2, label=titles[way])
        ax.set_xscale("log")
        times = [seconds for seconds, _ in found_ways.values()]
        ax.set_xlim(min(times) / 2, max(times) * 2)
        ax.set_ylim(0, 1.15 * max(radius for _, radius in found_ways.values()))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        ax.set_title(model, fontsize=10)
        ax.set_xlabel("seconds a sentence")
        ax.set_ylabel("ℓ2 radius, average")
    _legend(figure, axes, loc="outside right center")
    return figure


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both time and radius, the fastest first."""
    best: list[tuple[float, float]] = []
    for seconds, radius in sorted(points):
        if not best or radius > best[-1][1]:
            best.append((seconds, radius))
    return best
