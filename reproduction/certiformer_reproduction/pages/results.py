"""The tables and plots of `certiformer reproduce tables` in the page of results.

The tables go between `<!-- table: NAME -->` and `<!-- end -->`, the plots between `<!-- plot: NAME, TITLE -->` and
`<!-- end plot -->`, the images into `images`, and the figures behind the tables into `results`. The table at the top,
between `<!-- glance -->` and `<!-- end glance -->`, is taken from the others. The sentences around the tables are
written by hand and stay.
"""

from __future__ import annotations

import csv
import itertools
import re
import shutil
from pathlib import Path

from ..paper.write import percent

PAGE = "results.md"
TABLE = re.compile(r"(?P<head><!-- table: (?P<name>[\w-]+) -->\n).*?(?P<tail><!-- end -->)", re.DOTALL)
PLOT = re.compile(
    r"(?P<head><!-- plot: (?P<name>[\w-]+), (?P<title>[^>]+) -->\n).*?(?P<tail><!-- end plot -->)", re.DOTALL
)
GLANCE = re.compile(r"(?P<head><!-- glance -->\n).*?(?P<tail><!-- end glance -->)", re.DOTALL)
NORMS = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}


def renew(docs: Path, folder: Path) -> str:
    """Renew the page in `docs` from a folder of results, and say what was; what the folder lacks stays as it is."""
    used: list[str] = []

    def fill(found: re.Match[str]) -> str:
        source = folder / f"{found['name']}.md"
        if not source.is_file():
            return found[0]
        used.append(found["name"])
        return f"{found['head']}\n{source.read_text(encoding='utf-8')}\n{found['tail']}"

    def show(found: re.Match[str]) -> str:
        name = found["name"]
        if not (folder / "images" / f"{name}.png").is_file():
            return found[0]
        used.append(f"{name}.png")
        return f"{found['head']}\n![{found['title']}](images/{name}.png)\n\n{found['tail']}"

    page = TABLE.sub(fill, (docs / PAGE).read_text(encoding="utf-8"))
    tables = tuple(used)
    if {"main", "layernorm"} <= set(tables):
        lines = "\n".join(glance(folder))
        page = GLANCE.sub(lambda found: f"{found['head']}\n{lines}\n\n{found['tail']}", page)
    (docs / PAGE).write_text(PLOT.sub(show, page), encoding="utf-8")
    for name in tables:
        copy(folder / f"{name}.csv", docs / "results")
    for image in sorted((folder / "images").glob("*.png")):
        copy(image, docs / "images")
    return f"{PAGE}: renewed {', '.join(used) or 'nothing'}"


def glance(folder: Path) -> list[str]:
    """Averages of every row of the main table, and of standard LayerNorm in l2."""
    chosen = [(*pair, "") for pair in rows(folder / "main.csv")]
    chosen += [
        (here, published, ", standard LayerNorm")
        for here, published in rows(folder / "layernorm.csv")
        if (here["layer_norm"], here["norm"]) == ("standard", "l2")
    ]
    lines = [
        "| data | N | norm | published | the paper's method | ours | ours / paper's method | ours / gradient |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, published, kind in chosen:
        data = {"sst": "SST", "yelp": "Yelp"}[row["data"]]
        figures = (published["paper avg"], row["paper avg"], row["ours avg"])
        radii = [f"{float(figure):#.3g}" for figure in figures]
        radii[0] = f"*{float(figures[0]):.3g}*"  # as printed
        ratios = [percent(float(row[f"{name} avg"])) for name in ("ours / paper's method", "ours / gradient")]
        lines.append(f"| {' | '.join((data + kind, row['layers'], NORMS[row['norm']], *radii, *ratios))} |")
    return lines


def rows(path: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """The rows that were computed here and are complete, each with the published one."""
    with path.open(encoding="utf-8", newline="") as file:
        every = list(csv.DictReader(file))
    pairs = [(a, b) for a, b in itertools.pairwise(every) if (a["source"], b["source"]) == ("here", "published")]
    return [(a, b) for a, b in pairs if a["sentences"] == a["sentences chosen"] and a["ours avg"]]


def copy(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copyfile(source, folder / source.name)
