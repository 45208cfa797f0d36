"""A document as the page's script reads it: numbers rounded, colours chosen, sentences cut into words.

Everything is written here as it will be shown, certified radii rounded down and attacked ones up; the script
(`words.js`) only ever shows it as text. The report holds all sentences at once, the app sends one as it grows.
"""

from __future__ import annotations

import json
from typing import Any

from ..colours import LEVELS, relative
from ..core.deadline import OUT_OF_TIME
from ..numbers import NOTHING, down, up
from ..results import Ranked
from ..text import visible
from .records import Document, Place, Run, Sentence
from .scale import largest, levels
from .wording import told

FEW = 100  # sentences up to which the page says what each one cost
BREAKS = "\n\t"


def page_data(document: Document) -> str:
    """The results as JSON."""
    norms = list(dict.fromkeys(run.norm for sentence in document.results for run in sentence.runs))
    most = {norm: largest(r for s in document.results for r in s.runs if r.norm == norm) for norm in norms}
    content = {
        "norms": norms,
        "levels": LEVELS,
        "most": [down(most[norm]) for norm in norms],
        "sentences": [shown(s, norms, most, costs=len(document.results) <= FEW) for s in document.results],
    }
    return embedded(content)


def embedded(content: Any) -> str:
    """JSON that cannot end the element it stands in."""
    written = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(
    sentence: Sentence, norms: list[str], most: dict[str, float], *, costs: bool = True, left: int = 0
) -> dict[str, Any]:
    """A sentence: its text as it is, how to cut it into words, and their positions; `left` sets are still to come."""
    text, cuts, positions = _cut(sentence)
    runs = {str(norms.index(r.norm)): _run(r, positions, most[r.norm], costs=costs) for r in sentence.runs}
    for run in runs.values():
        run.update({"left": left} if left else {})
    content: dict[str, Any] = {
        "text": visible(text, keep=BREAKS),
        "cuts": " ".join(map(str, cuts)),
        "at": " ".join(map(str, positions)),
        "label": visible(sentence.label),
        "margin": f"{sentence.margin:.3g}",
        "note": visible(sentence.note or ""),
        "verdicts": [[v.status, visible(told(v, sentence.label))] for v in sentence.verdicts],
        "runs": runs,
        "ranks": [_rank(r) for r in sentence.importance],
    }
    return {key: value for key, value in content.items() if value}


def _rank(r: Ranked) -> list[Any]:
    by = [r.attacked_rank or NOTHING, visible(r.replacement or "")]
    return [visible(r.word), r.rank, down(r.normalized), r.gradient_rank, *by, relative(r.normalized), str(r.position)]


def _run(run: Run, positions: list[int], most: float, *, costs: bool) -> dict[str, Any]:
    """One norm of a sentence: columns with spaces between the values, and a digit of colour for each word."""
    sets = ["+".join(map(str, p.positions)) for p in run.places]
    by = [visible(p.replacement or p.flipped or NOTHING) for p in run.places]
    content: dict[str, Any] = {
        "sets": "" if sets == [str(i) for i in positions] else " ".join(sets),
        "names": [visible(" + ".join(p.words)) for p in run.places if len(p.positions) > 1],
        "by": "" if run.attack is None else by[0] if len(set(by)) == 1 else by,
        "costs": _costs(run) if costs else "",
        "error": visible(json.dumps(run.error, indent=1, ensure_ascii=False), keep=BREAKS) if run.error else "",
        "relative": _digits(levels(run), positions),
        "absolute": _digits(levels(run, most=most), positions),
    }
    if run.method is not None:
        content["certified"] = " ".join(down(p.certified) for p in run.places)
        content["normalized"] = " ".join(down(p.normalized) for p in run.places)
    if run.attack is not None:
        content["attacked"] = " ".join(up(p.attacked) for p in run.places)
    if run.substitute_seconds is not None:
        content["words"] = [_word(p) for p in run.places]
    return {key: value for key, value in content.items() if value}


def _word(place: Place) -> list[str] | None:
    """The closest word that changes the answer, how far it is, and what the answer becomes."""
    put = place.substitute
    return None if put is None else [visible(put.word), up(put.distance), visible(put.flipped)]


def _digits(found: dict[int, int], positions: list[int]) -> str:
    return "".join(str(found.get(position, "-")) for position in positions)


def _cut(sentence: Sentence) -> tuple[str, list[int], list[int]]:
    """The text, how many UTF-16 units lie before and in each token, one after the other, and the tokens' positions."""
    if sentence.spans is None or not sentence.text:
        words = [(i, token) for i, token in enumerate(sentence.tokens) if not sentence.special[i]]
        lengths = [n for k, (_, token) in enumerate(words) for n in (int(k > 0), _units(token))]
        return " ".join(token for _, token in words), lengths, [i for i, _ in words]
    text, end = sentence.text, 0
    cuts: list[int] = []
    positions: list[int] = []
    for position, span in enumerate(sentence.spans):
        if span is not None and end <= span[0] <= span[1] <= len(text):
            cuts += [_units(text[end : span[0]]), _units(text[span[0] : span[1]])]
            positions.append(position)
            end = span[1]
    return text, cuts, positions


def _units(text: str) -> int:
    """How long a text is to a browser."""
    return len(text) if text.isascii() else len(visible(text, keep=BREAKS).encode("utf-16-le")) // 2


def _costs(run: Run) -> str:
    parts = []
    if run.method is not None:
        calls = "" if run.calls is None else f", {run.calls:.1f} bound evaluations a set"
        seconds = "" if run.seconds is None else f" in {run.seconds:.2f} s"
        ended = "" if run.complete else f", {run.stopped or OUT_OF_TIME}: more may be provable"
        parts.append(f"certified by {run.method} with the {run.relaxation} relaxation{seconds}{calls}{ended}")
    if run.attack is not None:
        seconds = "" if run.attack_seconds is None else f" in {run.attack_seconds:.2f} s"
        parts.append(f"attacked by {run.attack}{seconds}")
    if run.substitute_seconds is not None:
        parts.append(f"every word of the vocabulary tried in {run.substitute_seconds:.2f} s")
    written = "; ".join(parts)
    return written and f"{written[0].upper()}{written[1:]}."
