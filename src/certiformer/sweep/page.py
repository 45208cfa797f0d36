"""The page of a sweep: curves, figures, what is most fragile, and every sentence in a table that can be sorted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from ..norms import norm_name, norm_order
from ..numbers import down, up, written
from ..report.evidence import facts, plural, section, table, text
from ..report.html import shell
from ..report.page import embedded
from ..report.style import css
from ..report.wording import of_which
from ..text import visible
from .compare import Comparison
from .figures import Figures, Part, Point, label, percent
from .result import COLOURS, CaseName, SweepResult
from .store import Record

WIDE, HIGH, LEFT, LOW = 640, 320, 52, 40  # of the picture, and its margins
SHEET = """
svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:12px}
svg .axis{stroke:var(--line)}
td:first-child{min-width:7rem}
#app td:first-child{min-width:18rem}
th button{border:0;background:none;padding:0;color:inherit;font-weight:600;border-radius:.2rem;text-align:inherit}
"""
MEANING = (
    "Certified: the model is right, and proved to stay right whichever set of words moves by up to the radius, each "
    "set alone. Refuted: right, but a change within the radius was found that changes the answer. The accuracy under "
    "the worst such changes lies between the two lines."
)


def page(result: SweepResult, comparison: Comparison | None = None) -> str:
    """One file that needs no other."""
    data, every = result.manifest["data"], [(case, result.figures(case.number)) for case in result.cases]
    title = f"Certified accuracy on {data['name']} {data['split']}"
    state = (
        "" if result.complete else f'<p class="bad">{len(result.table):,} of {result.total:,} rows are finished.</p>'
    )
    parts = [
        f"<h1>{text(title)}</h1>",
        f'<p class="soft">{plural(data["sentences"], "sentence")}, {plural(len(every), "case")}</p>{state}',
        f"<p>{text(MEANING)} {text(of_which(result.manifest['bounds']))}</p>",
        section("Curves", picture([(case, f.whole.curve) for case, f in every]) + _curves(every)),
        *([_compared(comparison)] if comparison is not None else []),
        *(_case(case, found) for case, found in every),
        section(
            "Sentences",
            '<div class="controls"><label>find <input id="find" type="search"></label>'
            '<span id="count" class="soft"></span><button id="more">show more</button></div>'
            '<div class="scroll" tabindex="0" role="region" aria-label="sentences" id="app"></div>'
            "<noscript><p>The table is shown by a script, which this browser does not run.</p></noscript>",
        ),
        section("Record", facts(_record(result))),
    ]
    shown = {
        "columns": list(_shown(result, {}, every[0][0])),
        "rows": [list(_shown(result, row).values()) for row in result.table],
    }
    script = files(__package__).joinpath("sweep.js").read_text(encoding="utf-8")
    return shell(title, "".join(parts), data=embedded(shown), script=script, sheet=css() + SHEET)


def _shown(result: SweepResult, row: Record, case: CaseName | None = None) -> dict[str, object]:
    """A row of the table that can be sorted: what is proved is rounded down, what was reached up."""
    case = case or result.cases[row["case"]]
    several = {"case": str(case)} if len(result.cases) > 1 else {}
    certified, attacked = row.get("certified"), row.get("attacked")
    told = row.get("reason") or ("wrong" if row.get("status") == "wrong" else "")
    return {
        "sentence": visible(row.get("text", "")),
        **several,
        "number": row.get("sentence"),
        "label": label(case.labels, row["label"]) if row else "",
        "words": row.get("length"),
        "certified": None if certified is None else float(down(certified)),
        "attacked": None if attacked is None else float(up(attacked)),
        "weakest": visible(" + ".join(row.get("weakest", []))),
        "": visible(told),
    }


def picture(curves: Sequence[tuple[CaseName, Sequence[Point]]]) -> str:
    """The curves as SVG: certified as a line, light up to what is not refuted."""
    far = max((p.eps for _, curve in curves for p in curve), default=0.0) or 1.0

    def at(eps: float, share: float) -> str:
        x, y = LEFT + (WIDE - LEFT - 10) * eps / far, 10 + (HIGH - LOW - 10) * (1 - share)
        return f"{x:.1f},{y:.1f}"

    parts = []
    for k in range(5):
        y = at(0, k / 4).split(",")[1]
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDE - 10}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y}" text-anchor="end" dominant-baseline="middle">{25 * k}%</text>')
    marks = [p.eps for p in curves[0][1]] if curves else []
    last = -1e9
    for eps in marks:
        x = float(at(eps, 0).split(",")[0])
        if x - last > 34:
            parts.append(f'<text x="{x:.1f}" y="{HIGH - 18}" text-anchor="middle">{written(eps)}</text>')
            last = x
    parts.append(f'<text x="{WIDE / 2:.0f}" y="{HIGH - 2}" text-anchor="middle">how far each word may move</text>')
    for case, curve in curves:
        colour = COLOURS[case.number % len(COLOURS)]
        least = " ".join(at(p.eps, p.least) for p in curve)
        most = [at(p.eps, p.most) for p in curve]
        area = f'<polygon points="{least} {" ".join(reversed(most))}" fill="{colour}" fill-opacity="0.14"/>'
        parts.append(area)
        parts.append(f'<polyline points="{least}" fill="none" stroke="{colour}" stroke-width="2"/>')
        dotted = 'fill="none" stroke-dasharray="2 4"'
        parts.append(f'<polyline points="{" ".join(most)}" {dotted} stroke="{colour}" stroke-width="1.5"/>')
    keys = "".join(
        f'<tspan fill="{COLOURS[case.number % len(COLOURS)]}" x="{WIDE - 14}" dy="1.25em">{text(str(case))}</tspan>'
        for case, _ in curves
    )
    parts.append(f'<text x="{WIDE - 14}" y="6" text-anchor="end">{keys}</text>')
    label = "Certified accuracy by radius; the same numbers are in the table below"
    return f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _curves(every: Sequence[tuple[CaseName, Figures]]) -> str:
    rows = []
    for case, found in every:
        for p in found.whole.curve:
            rows.append((str(case), written(p.eps), p.proved, p.open_to, f"{p.unknown + p.error:,}"))
    return table(("case", "radius", "certified", "not refuted", "between"), rows)


def _case(case: CaseName, found: Figures) -> str:
    proved = found.whole
    reached = [] if found.mean_attacked is None else [("attacked radius, mean", up(found.mean_attacked))]
    failed = [("failed", plural(found.errors, "sentence"))] if found.errors else []
    told = [
        ("accuracy", f"{proved.accuracy:.2%} ({proved.right:,} of {proved.count:,})"),
        ("certified radius, mean", down(found.mean_radius)),
        ("certified radius, median", down(found.median_radius)),
        ("certified radius, smallest", down(found.smallest_radius)),
        *reached,
        *failed,
    ]
    weak = [(r["text"], " + ".join(r["weakest"]), down(r["certified"]), up(r["attacked"])) for r in found.sentences]
    words = [(w.word, f"{w.times:,}", down(w.radius)) for w in found.words]
    return section(
        f"Case {case.number + 1}: {text(str(case))}",
        facts(told)
        + f"<h3>Certified accuracy by class and radius</h3>{_parts(found.by_class)}"
        + f"<h3>Certified accuracy by length in words and radius</h3>{_parts(found.by_length)}"
        + f"<h3>Most fragile sentences</h3>{table(('sentence', 'weakest', 'certified', 'attacked'), weak)}"
        + "<h3>Most fragile words: how often each is the weakest of its sentence</h3>"
        + table(("word", "sentences", "smallest radius"), words),
    )


def _parts(parts: Iterable[Part]) -> str:
    some = list(parts)
    at = [written(p.eps) for p in some[0].curve] if some else []
    rows = [
        (p.name, f"{p.count:,}", f"{p.accuracy:.1%}", *(percent(q.certified, q.count, digits=1) for q in p.curve))
        for p in some
    ]
    return table(("", "sentences", "accuracy", *at), rows)


def _compared(found: Comparison) -> str:
    first, second = found.names
    rows = [
        (written(p.eps), f"{p.both:,}", f"{p.first:,}", f"{p.second:,}", f"{p.neither:,}", f"{p.chance:.2g}")
        for p in found.pairs
    ]
    names = ("radius", "both", f"only {first}", f"only {second}", "neither", "by chance")
    told = (
        f"<p>{plural(len(found.rows), 'sentence')} that both were asked about, by which model is certified there.</p>"
    )
    return section("Side by side", told + table(names, rows))


def _record(result: SweepResult) -> list[tuple[str, str]]:
    about = result.manifest
    bounds = {k: v for k, v in about["bounds"].items() if v is not None}
    rows = [
        ("data", f"{about['data']['name']} {about['data']['split']}, SHA-256 {about['data']['sha256']}"),
        ("norms", ", ".join(norm_name(norm_order(p)) for p in about["norms"])),
        ("words moved at once", ", ".join(map(str, about["words"]))),
        ("bounds", ", ".join(f"{k} {v}" for k, v in bounds.items())),
        ("backward-forward first", "yes" if about["quick"] else "no"),
        ("attack", ", ".join(f"{k} {v}" for k, v in about["attack"].items()) if about["attack"] else "none"),
        ("certiformer", about["certiformer"]),
    ]
    return rows + [(f"SHA-256 of {m['name']}", m["weights"]) for m in about["models"]]
