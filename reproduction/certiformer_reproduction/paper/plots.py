"""Three plots from the written tables: radius by layers, radius by word, and what time buys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from certiformer.errors import InputError

Json = dict[str, Any]
STYLES = {  # colours that the colour-blind can tell apart (Okabe and Ito), and a marker for each method
    "upper": ("#aaaaaa", "^"),
    "gradient": ("#555555", "v"),
    "ibp": ("#cc79a7", "x"),
    "forward": ("#e69f00", "P"),
    "backward": ("#d55e00", "X"),
    "paper": ("#56b4e9", "s"),
    "ours-quick": ("#009e73", "D"),
    "ours": ("#0072b2", "o"),
    "ours-steps": ("#000000", "*"),
}
EXAMPLES = 4
DATA = {"sst": "SST", "yelp": "Yelp"}
NORMS = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}


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
        ("time", lambda: ablation and time(ablation)),
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
    """Average radius against the number of layers, a column a dataset; IBP, far below, in a panel of its own.

    The norm is the one with the most finished sentences, l2 where there is no difference.
    """
    from matplotlib.figure import Figure

    here = [r for r in main["rows"] if r["source"] == "here" and r["values"].get("ours avg")]
    if not here:
        return None
    done = {
        norm: sum(r["values"]["sentences"] for r in here if r["labels"]["norm"] == norm)
        for norm in sorted({r["labels"]["norm"] for r in here}, key=lambda norm: norm != "l2")
    }
    norm = max(done, key=lambda norm: done[norm])
    rows = [r for r in main["rows"] if r["labels"]["norm"] == norm and (r in here or r["source"] == "published")]
    datasets = list(dict.fromkeys(r["labels"]["data"] for r in rows))
    figure = Figure(figsize=(3.4 * len(datasets) + 2.4, 5.6), layout="constrained")
    grid = figure.subplots(2, len(datasets), squeeze=False, sharex="col", sharey="row", height_ratios=(2, 1))
    for k, data in enumerate(datasets):
        of_data = [r for r in rows if r["labels"]["data"] == data]
        for ax, ways in zip(grid[:, k], (("upper", "gradient", "ours", "paper"), ("ibp",)), strict=True):
            _plain(ax)
            ax.set_yscale("log")
            for way in ways:
                colour, marker = STYLES[way]
                for source, line in (("here", "-"), ("published", ":")):
                    points = [
                        (int(r["labels"]["layers"]), r["values"][f"{way} avg"])
                        for r in of_data
                        if r["source"] == source and r["values"].get(f"{way} avg")
                    ]
                    if points:
                        title = main["titles"][way] + (", published" if source == "published" else "")
                        style = {"color": colour, "marker": marker, "linestyle": line, "label": title}
                        ax.plot(*zip(*points, strict=True), linewidth=1.8, markersize=6, **style)
        ticks = {int(r["labels"]["layers"]): "" for r in of_data}
        ticks |= {int(r["labels"]["layers"]): _sentences(r["values"]) for r in of_data if r["source"] == "here"}
        grid[0, k].set_title(DATA[data], fontsize=11)
        grid[1, k].set_xticks(list(ticks), [f"{n}\n{count}" for n, count in ticks.items()], fontsize=8)
        grid[1, k].set_xlabel("layers, and sentences")
        grid[1, k].margins(x=0.15)
    grid[0, 0].set_ylabel(f"{NORMS[norm]} radius, average (log)")
    grid[1, 0].set_ylabel("IBP, the same")
    _legend(figure, grid.flat, loc="outside right center")
    return figure


def _sentences(values: Json) -> str:
    used, chosen = int(values["sentences"]), int(values["sentences chosen"])
    return f"{used}" if used == chosen else f"{used} of {chosen}"


def words(main: Json) -> Any:
    """Radius of every word of a few sentences of one model: certified by two methods, and attacked.

    Of the models with enough finished sentences it is one of SST, and the deepest.
    """
    wanted = ("paper", "ours", "gradient")
    records = [r for r in main["records"] if r["norm"] == "l2" and r["way"] in wanted]
    by_sentence: dict[tuple[str, int], Json] = {}
    for r in records:
        by_sentence.setdefault((r["model"], r["sentence"]), {})[r["way"]] = r
    whole = {k: v for k, v in by_sentence.items() if len(v) == len(wanted)}
    enough = Counter(model for model, _ in whole)
    models = sorted(enough, key=lambda m: (min(enough[m], EXAMPLES), m.startswith("sst"), m))
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
            color=STYLES["paper"][0],
            label="proved, paper's method",
        )
        ax.bar([i + 0.2 for i in at], found["ours"]["radii"], width=0.38, color=STYLES["ours"][0], label="proved, ours")
        ax.set_xticks(list(at), tokens, rotation=40, ha="right", fontsize=8)
        ax.set_title(f"{models[-1]} says {('negative', 'positive')[found['ours']['label']]}", fontsize=9, loc="left")
    for ax in axes[::2]:
        ax.set_ylabel("ℓ2 radius")
    _legend(figure, axes, loc="outside upper center", ncols=3)
    return figure


def time(ablation: Json) -> Any:
    """Average radius against seconds a sentence, l2, a panel a dataset: of sentences that were timed one at a time."""
    proofs = [name for name, options in ablation["settings"]["methods"].items() if "relaxation" in options]
    panels: dict[str, dict[str, tuple[float, float]]] = {}
    for row in ablation["rows"]:
        values, labels = row["values"], row["labels"]
        if row["source"] == "here" and labels["norm"] == "l2":
            found = {w: (values[f"{w} seconds"], values[f"{w} avg"]) for w in proofs if values.get(f"{w} avg")}
            if len(found) > 1:
                panels[labels["data"]] = found
    if not panels:
        return None
    figure, axes = _axes(len(panels), 4.0, 3.8)
    for ax, (data, ways) in zip(axes, panels.items(), strict=True):
        ax.plot(*zip(*_front(list(ways.values())), strict=True), color="#cccccc", linewidth=1, zorder=1)
        for way, (seconds, radius) in ways.items():
            colour, marker = STYLES[way]
            title = ablation["titles"][way]
            ax.scatter(seconds, radius, s=60, c=colour, marker=marker, edgecolors="white", zorder=2, label=title)
        ax.set_xlim(0, 1.15 * max(seconds for seconds, _ in ways.values()))
        ax.set_ylim(0, 1.15 * max(radius for _, radius in ways.values()))
        ax.set_title(f"{DATA[data]}, one layer, width 64", fontsize=10)
        ax.set_xlabel("seconds a sentence")
    axes[0].set_ylabel("ℓ2 radius, average")
    _legend(figure, axes, loc="outside right center")
    return figure


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both time and radius, the fastest first."""
    best: list[tuple[float, float]] = []
    for seconds, radius in sorted(points):
        if not best or radius > best[-1][1]:
            best.append((seconds, radius))
    return best
