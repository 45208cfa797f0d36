"""Three plots from the written tables: radius by layers, radius by word, and what time buys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes[:count]


def layers(main: Json) -> Any:
    """Average radius against the number of layers, in l2, a panel a dataset."""
    rows = [r for r in main["rows"] if r["labels"]["norm"] == "l2"]
    datasets = list(dict.fromkeys(r["labels"]["data"] for r in rows))
    if not datasets:
        return None
    figure, axes = _axes(len(datasets), 4.6, 3.8, sharey=True)
    for ax, data in zip(axes, datasets, strict=True):
        for source, style in (("here", "-"), ("published", ":")):
            some = [r for r in rows if r["labels"]["data"] == data and r["source"] == source]
            for way in ("gradient", "upper", "ours", "paper", "ibp"):
                points = [(int(r["labels"]["layers"]), r["values"].get(f"{way} avg")) for r in some]
                points = [(n, v) for n, v in points if v]
                if points:
                    here = source == "here"
                    title = main["titles"][way] + ("" if here else ", published")
                    x, y = zip(*points, strict=True)
                    ax.plot(x, y, style, marker="o" if here else ".", color=COLOURS[way], label=title, linewidth=1.8)
        ax.set_yscale("log")
        ax.set_xticks(sorted({int(r["labels"]["layers"]) for r in rows}))
        ax.set_title(DATA[data])
        ax.set_xlabel("layers")
    axes[0].set_ylabel("radius, ℓ2 (average over positions)")
    handles = {label: h for ax in axes for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8, frameon=False)
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
        ax.set_title(f"{('negative', 'positive')[found['ours']['label']]}", fontsize=9, loc="left")
    for ax in axes[::2]:
        ax.set_ylabel("radius, ℓ2")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(f"Model {models[-1]}", fontsize=10)
    return figure


def time(tables: list[Json]) -> Any:
    """Average radius against seconds a sentence, l2, a panel a model."""
    panels: dict[str, dict[str, tuple[float, float]]] = {}
    titles: dict[str, str] = {}
    for table in tables:
        titles |= table["titles"]
        lower = {name for name, options in table["settings"]["methods"].items() if "relaxation" in options}
        for way in lower - {"ibp"}:
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
    figure, axes = _axes(len(panels), 4.4, 3.4)
    for ax, (model, ways) in zip(axes, panels.items(), strict=True):
        line = sorted(ways.values())
        ax.plot(*zip(*line, strict=True), color="#cccccc", linewidth=1, zorder=1)
        for way, (seconds, radius) in ways.items():
            ax.scatter(seconds, radius, color=COLOURS[way], s=44, zorder=2, label=titles[way])
            ax.annotate(titles[way], (seconds, radius), xytext=(6, 5), textcoords="offset points", fontsize=8)
        ax.set_xscale("log")
        ax.set_ylim(bottom=0)
        ax.margins(x=0.3, y=0.2)
        ax.set_title(model, fontsize=10)
        ax.set_xlabel("seconds a sentence")
        ax.set_ylabel("radius, ℓ2")
    return figure
