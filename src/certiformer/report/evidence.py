"""What an auditor files with the results, under the terms of ISO/IEC 24029-2.

The standard speaks of the domain of a property, of stability, sensitivity and reachability, and of the arithmetic that
a proof is about. The words here are our own, and nothing here claims conformity with it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from ..numbers import NOTHING, down, up, written
from ..text import visible
from .page import BREAKS
from .records import Document, Place, Run, Sentence, Verdict
from .wording import of_which

WORST = 5  # rows of a table, for each norm

_SCOPE = (
    "This page is evidence about the robustness of one model on the sentences named in it, for a file on robustness "
    "such as Article 15 of the EU AI Act (Regulation (EU) 2024/1689) calls for. Its headings are terms of ISO/IEC "
    "24029-2. It is no statement of conformity with either. It says nothing of accuracy, of other inputs, or of "
    "attacks other than those described under Domain. It is a record, not a proof that checks itself: to be sure, ask "
    "the same of the same model."
)
_CERTIFICATES = (
    "Each file holds a proof that a second, small program checks, which shares no code with the one that found it: "
    "certiformer check FILE --model FOLDER."
)
_STABILITY = (
    "Does the answer stay the same on the whole domain? A certified radius is proved for all points of it at once, not "
    "for samples."
)
_SENSITIVITY = (
    "Which words may move least, relative to the length of their embedding? Small changes of these matter most."
)
_REACHABILITY = (
    "Can another answer be reached? Every counterexample below is a point that was run, with the answer it gave. "
    "Within a certified radius none can be reached; where no counterexample was found beyond it, nothing is claimed."
)


def text(content: str) -> str:
    """Text as it may stand in a page."""
    return escape(visible(content, keep=BREAKS))


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def before(document: Document) -> str:
    """What stands before the sentences: what may vary, and all sentences in a few numbers."""
    return (
        f"{_state(document)}{section('Domain', facts(_domain(document)))}"
        f'<h2 class="part" id="stability">Stability</h2><p>{_STABILITY}</p>{_overview(document)}'
    )


def after(document: Document, folder: Path | None = None) -> str:
    """What stands behind them: the most sensitive words, the counterexamples, the arithmetic, and the record."""
    sensitive, reached = _sensitive(document), _reached(document)
    parts = []
    if sensitive:
        parts.append(section("Sensitivity", f"<p>{_SENSITIVITY}</p>{sensitive}"))
    if reached:
        parts.append(section("Reachability", f"<p>{_REACHABILITY}</p>{reached}"))
    parts.append(section("Arithmetic", facts(_arithmetic(document))))
    proofs = _proofs(document, folder)
    if proofs:
        parts.append(section("Certificates", f"<p>{text(_CERTIFICATES)}</p>{proofs}"))
    parts.append(section("Record", f"<p>{text(_SCOPE)}</p>{facts(_record(document))}"))
    return "".join(parts)


def _proofs(document: Document, folder: Path | None) -> str:
    """Links to the files of proofs, as seen from a folder."""
    found: list[tuple[str, Place | Verdict, str]] = []
    for sentence in document.results:
        found += [(sentence.text, place, run.norm) for run in sentence.runs for place in run.places]
        found += [(sentence.text, verdict, verdict.norm) for verdict in sentence.verdicts]
    rows = []
    for told, each, norm in found:
        if each.certificate is not None:
            path = each.certificate if folder is None else os.path.relpath(each.certificate, folder)
            href = escape(quote(Path(path).as_posix(), safe="/"), quote=True)
            name = text(Path(path).name)
            cells = (told, " + ".join(each.words), norm)
            rows.append("".join(f"<td>{text(cell)}</td>" for cell in cells) + f'<td><a href="{href}">{name}</a></td>')
    return _framed(("sentence", "words", "norm", "file"), rows) if rows else ""


def section(title: str, content: str) -> str:
    """A part of the page under a title."""
    name = "-".join(title.lower().split())
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A list of names and what belongs to them."""
    return f"<dl>{''.join(f'<dt>{text(k)}</dt><dd>{text(v)}</dd>' for k, v in rows if v)}</dl>"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with names over its columns."""
    return _framed(names, ("".join(f"<td>{text(cell)}</td>" for cell in row) for row in rows))


def _framed(names: Sequence[str], rows: Iterable[str]) -> str:
    """A table of rows that are HTML already."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="table">{table}</div>'


def _state(document: Document) -> str:
    parts = [] if document.complete else ['<p class="bad">Stopped half way: this is what was finished.</p>']
    lines = "".join(
        f"<li>{text(('' if f.line is None else f'line {f.line}: ') + f.message)}</li>" for f in document.failures
    )
    if lines:
        head = f"{plural(len(document.failures), 'sentence')} could not be handled"
        opened = " open" if len(document.failures) <= 10 else ""
        parts.append(f'<details class="bad"{opened}><summary>{head}</summary><ul>{lines}</ul></details>')
    return "".join(parts)


def _domain(document: Document) -> list[tuple[str, str]]:
    """What may vary, and over which inputs."""
    settings = document.settings
    words = sum(not special for sentence in document.results for special in sentence.special)
    replaced = settings.get("substitutions") is not None
    return [
        ("data", f"{plural(len(document.results), 'sentence')}, {plural(words, 'token')} that may move"),
        ("SHA-256 of the texts", _digest(document) if document.results else ""),
        ("threat model", _WORDS if replaced else _JOINT if settings.get("joint") else _BALL),
        ("what moves", _moves(settings)),
        ("norm", _listed(settings.get("norms"))),
        ("radius", _radius(document)),
        ("outside of it", _OUTSIDE),
    ]


_BALL = (
    "the embedding of each word that moves may become any vector within the radius of it, each in a ball of its own; "
    "all others stay where they are"
)
_JOINT = (
    "the embeddings of the words that move may change by any vectors whose norm, taken over all of them at once, is "
    "within the radius; all others stay where they are"
)
_WORDS = "words are replaced by the substitutes that were given, any of them, all at once"
_OUTSIDE = "special tokens, words put in or left out, other orders of words, and all that happens before the embeddings"


def _digest(document: Document) -> str:
    return hashlib.sha256(json.dumps([sentence.text for sentence in document.results]).encode()).hexdigest()


def _listed(value: Any) -> str:
    """A setting, whatever it is: the items of a list, the keys of an object."""
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, (list, dict)) else str(value)


def _moves(settings: dict[str, Any]) -> str:
    if settings.get("substitutions") is not None:
        return _listed(settings["substitutions"])
    if settings.get("positions") is not None:
        return f"the positions {settings['positions']} (with + between those that move together)"
    count = settings.get("words")
    return "one word at a time" if count in (None, 1) else f"every set of {count} words, together"


def _radius(document: Document) -> str:
    eps = {verdict.eps for sentence in document.results for verdict in sentence.verdicts if verdict.eps is not None}
    if eps:
        return ", ".join(written(value) for value in sorted(eps))
    searched = document.command in ("radius", "report", "importance")
    return "the largest that could be proved, for each word" if searched else ""


def _overview(document: Document) -> str:
    """Everything in a few numbers, where there is more than one sentence."""
    if len(document.results) < 2:
        return ""
    labels = Counter(sentence.label for sentence in document.results)
    rows = [("the model says", ", ".join(f"{label}: {n:,}" for label, n in labels.most_common()))]
    verdicts = Counter(verdict.status for sentence in document.results for verdict in sentence.verdicts)
    if verdicts:
        rows.append(("verdicts", ", ".join(f"{status}: {n:,}" for status, n in verdicts.most_common())))
    for norm in dict.fromkeys(run.norm for sentence in document.results for run in sentence.runs):
        runs = [run for sentence in document.results for run in sentence.runs if run.norm == norm]
        sound = [run for run in runs if run.error is None]
        weakest = [min(v) for run in sound if (v := [p.certified for p in run.places if p.certified is not None])]
        if weakest:
            rows.append(
                (f"certified {norm}, weakest words", f"median {down(median(weakest))}, least {down(min(weakest))}")
            )
        reached = [min(v) for run in runs if (v := [p.attacked for p in run.places if p.attacked is not None])]
        if reached:
            values = f"median {up(median(reached))}, least {up(min(reached))}"
            rows.append((f"attacked {norm}, weakest words", values))
    return f'<section aria-label="overview"><h3>All sentences</h3>{facts(rows)}</section>'


Found = tuple[int, Sentence, Run, Place]


def _places(document: Document) -> dict[str, list[Found]]:
    """Every set of words with its sentence, by norm; runs that contradict themselves are left out."""
    found: dict[str, list[Found]] = {}
    for number, sentence in enumerate(document.results, start=1):
        for run in sentence.runs:
            if run.error is None:
                found.setdefault(run.norm, []).extend((number, sentence, run, place) for place in run.places)
    return found


def _sensitive(document: Document) -> str:
    """The words that may move least."""
    rows = []
    for norm, places in _places(document).items():
        known = [item for item in places if item[3].normalized is not None]
        for number, _, _, place in sorted(known, key=lambda item: item[3].normalized or 0.0)[:WORST]:
            rows.append((" + ".join(place.words), str(number), norm, down(place.certified), down(place.normalized)))
    if rows:
        return table(("word", "sentence", "norm", "certified", "certified / length"), rows)
    ranked = [
        (r.word, str(number), down(r.certified), down(r.normalized), str(r.rank))
        for number, sentence in enumerate(document.results, start=1)
        for r in sentence.importance
        if r.rank == 1
    ]
    return table(("word", "sentence", "certified", "certified / length", "rank"), ranked[:WORST]) if ranked else ""


def _reached(document: Document) -> str:
    """Counterexamples: how many, and the closest."""
    rows: list[Sequence[str]] = []
    count = 0
    for norm, places in _places(document).items():
        reached = [item for item in places if item[3].attacked is not None]
        count += len(reached)
        for number, sentence, _, place in sorted(reached, key=lambda item: item[3].attacked or 0.0)[:WORST]:
            change = f"{sentence.label} to {place.flipped}" if place.flipped else NOTHING
            rows.append(
                (
                    " + ".join(place.words),
                    str(number),
                    norm,
                    up(place.attacked),
                    change,
                    place.replacement or _near(place),
                )
            )
    for number, sentence in enumerate(document.results, start=1):
        refuted = [verdict for verdict in sentence.verdicts if verdict.status == "refuted"]
        count += len(refuted)
        rows += [_refuted(verdict, number, sentence) for verdict in refuted[:WORST]]
    asked = any(run.attack for sentence in document.results for run in sentence.runs)
    asked = asked or any(sentence.verdicts for sentence in document.results)
    if not rows:
        return "<p>No counterexample was found.</p>" if asked else ""
    shown = "" if count == len(rows) else f" The closest {len(rows)}:"
    names = ["word", "sentence", "norm", "size", "the answer", "word in its place"]
    if all(row[-1] == NOTHING for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    return f"<p>{plural(count, 'counterexample')} found.{shown}</p>{table(names, rows)}"


def _near(place: Place) -> str:
    return NOTHING if place.substitute is None else f"{place.substitute.word} ({up(place.substitute.distance)})"


def _refuted(verdict: Verdict, number: int, sentence: Sentence) -> tuple[str, ...]:
    change = f"{sentence.label} to {verdict.flipped}" if verdict.flipped else NOTHING
    put = ", ".join(verdict.replacements or ()) or NOTHING
    return " + ".join(verdict.words), str(number), verdict.norm, up(verdict.radius), change, put


_NUMBERS = {
    "float64": "float64",
    "float32": "float32, for weights rounded to float32 first",
}


def _arithmetic(document: Document) -> list[tuple[str, str]]:
    """What the proofs are about, and in which numbers they were computed."""
    settings = document.settings
    proved = of_which(settings)
    return [
        ("proofs", proved.removeprefix("Proofs are ") or "none: nothing is proved here"),
        ("bounds computed in", _NUMBERS.get(str(settings.get("dtype")), "") if proved else ""),
        (
            "rounding",
            "the rounding of every step is part of the bounds; certified radii are shown rounded down" * bool(proved),
        ),
        ("counterexamples", "run again in float64, and shown rounded up"),
    ]


def _record(document: Document) -> list[tuple[str, str]]:
    """Model, method, settings and versions: what is needed to ask again."""
    settings = {k: v for k, v in document.settings.items() if v is not None}
    methods = {
        f"{run.method}, {run.relaxation} relaxation": None
        for sentence in document.results
        for run in sentence.runs
        if run.method
    }
    rows = [("command", document.command), ("model", document.model), ("labels", ", ".join(document.labels))]
    rows += [(f"SHA-256 of the {name}", digest) for name, digest in document.hashes.items()]
    rows += [("bounds by", "; ".join(methods))]
    rows += [(key, _listed(v)) for key, v in settings.items()]
    return [*rows, ("created", document.created), ("seconds", f"{document.seconds:.1f}"), *document.versions.items()]
