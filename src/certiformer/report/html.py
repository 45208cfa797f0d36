"""One self-contained HTML file from a document: no network; all text goes in as data and comes out as text.

The page holds the results as JSON, with every number rounded and every colour chosen here, and a script that shows as
many sentences as fit on a screen. A policy in the page allows that script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from html import escape
from importlib.resources import files
from statistics import median
from typing import Any

from ..colours import LEVELS, relative
from ..numbers import NOTHING, down, up
from ..results import Ranked
from ..text import visible
from .records import Document, Run, Sentence
from .scale import largest, levels
from .style import css
from .wording import MEANING, of_which, summary, told

FEW = 100  # sentences up to which the page says what each one cost
TITLES = {
    "certify": "Is the verdict proved?",
    "importance": "Which words matter?",
    "attack": "How small a change is enough?",
}
_TITLE = "How far may each word move?"
_MEANINGS = {
    "certify": "Certified: proved; no change asked about changes the verdict. Refuted: one was found that does.",
    "importance": "The less a word may move, relative to the length of its embedding, the more it matters.",
    "attack": "Attacked: a change of this size that changes the verdict was found.",
}
_BREAKS = "\n\t"


def html(document: Document) -> str:
    """The report of everything in a document."""
    title = TITLES.get(document.command, _TITLE)
    count = _plural(len(document.results), "sentence")
    script, sheet = files(__package__).joinpath("page.js").read_text(encoding="utf-8"), css()
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(sheet)}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_text(f'{title} {count}, model {document.model}')}</title><style>{sheet}</style></head><body><main>"
        f'<h1>{title}</h1><p class="soft">{count}, model {_text(document.model)}, {_text(document.created)}</p>'
        f"<p>{escape(f'{_MEANINGS.get(document.command, MEANING)} {of_which(document.settings)}'.strip())}</p>"
        f'{_state(document)}{_overview(document)}<div id="app"></div>'
        "<noscript><p>The sentences are shown by a script, which this browser does not run.</p></noscript>"
        f"{_about(document)}</main>"
        f'<script type="application/json" id="data">{_data(document)}</script><script>{script}</script></body></html>\n'
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _text(text: str) -> str:
    return escape(visible(text, keep=_BREAKS))


def _state(document: Document) -> str:
    parts = [] if document.complete else ['<p class="bad">Stopped half way: this is what was finished.</p>']
    lines = "".join(
        f"<li>{_text(('' if f.line is None else f'line {f.line}: ') + f.message)}</li>" for f in document.failures
    )
    if lines:
        head = f"{_plural(len(document.failures), 'sentence')} could not be handled"
        opened = " open" if len(document.failures) <= 10 else ""
        parts.append(f'<details class="bad"{opened}><summary>{head}</summary><ul>{lines}</ul></details>')
    return "".join(parts)


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
        weakest = [min(v) for run in runs if (v := [p.certified for p in run.places if p.certified is not None])]
        if weakest:
            rows.append(
                (f"certified {norm}, weakest words", f"median {down(median(weakest))}, least {down(min(weakest))}")
            )
        reached = [min(v) for run in runs if (v := [p.attacked for p in run.places if p.attacked is not None])]
        if reached:
            values = f"median {up(median(reached))}, least {up(min(reached))}"
            rows.append((f"attacked {norm}, weakest words", values))
    written = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in rows)
    return f'<section aria-label="overview"><h2>All sentences</h2><dl>{written}</dl></section>'


def _data(document: Document) -> str:
    """The results as JSON that cannot end the element it stands in."""
    norms = list(dict.fromkeys(run.norm for sentence in document.results for run in sentence.runs))
    most = {norm: largest(r for s in document.results for r in s.runs if r.norm == norm) for norm in norms}
    content = {
        "norms": norms,
        "levels": LEVELS,
        "most": [down(most[norm]) for norm in norms],
        "sentences": [_sentence(s, norms, most, costs=len(document.results) <= FEW) for s in document.results],
    }
    written = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sentence(sentence: Sentence, norms: list[str], most: dict[str, float], *, costs: bool) -> dict[str, Any]:
    """A sentence: its text as it is, how to cut it into words, and their positions."""
    text, cuts, positions = _cut(sentence)
    runs = {str(norms.index(r.norm)): _run(sentence, r, positions, most[r.norm], costs=costs) for r in sentence.runs}
    content: dict[str, Any] = {
        "text": visible(text, keep=_BREAKS),
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


def _run(sentence: Sentence, run: Run, positions: list[int], most: float, *, costs: bool) -> dict[str, Any]:
    """One norm of a sentence: columns with spaces between the values, and a digit of colour for each word."""
    told_of = summary(sentence, run)
    sets = ["+".join(map(str, p.positions)) for p in run.places]
    by = [visible(p.replacement or p.flipped or NOTHING) for p in run.places]
    content: dict[str, Any] = {
        "sets": "" if sets == [str(i) for i in positions] else " ".join(sets),
        "names": [visible(" + ".join(p.words)) for p in run.places if len(p.positions) > 1],
        "by": "" if run.attack is None else by[0] if len(set(by)) == 1 else by,
        "told": visible(told_of[:1].upper() + told_of[1:] + "."),
        "costs": _costs(run) if costs else "",
        "error": visible(json.dumps(run.error, indent=1, ensure_ascii=False), keep=_BREAKS) if run.error else "",
        "relative": _digits(levels(run), positions),
        "absolute": _digits(levels(run, most=most), positions),
    }
    if run.method is not None:
        content["certified"] = " ".join(down(p.certified) for p in run.places)
        content["normalized"] = " ".join(down(p.normalized) for p in run.places)
    if run.attack is not None:
        content["attacked"] = " ".join(up(p.attacked) for p in run.places)
    return {key: value for key, value in content.items() if value}


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
    return len(text) if text.isascii() else len(visible(text, keep=_BREAKS).encode("utf-16-le")) // 2


def _costs(run: Run) -> str:
    parts = []
    if run.method is not None:
        calls = "" if run.calls is None else f", {run.calls:.1f} bound evaluations a set"
        seconds = "" if run.seconds is None else f" in {run.seconds:.2f} s"
        ended = "" if run.complete else ", out of time: more may be provable"
        parts.append(f"certified by {run.method} with the {run.relaxation} relaxation{seconds}{calls}{ended}")
    if run.attack is not None:
        seconds = "" if run.attack_seconds is None else f" in {run.attack_seconds:.2f} s"
        parts.append(f"attacked by {run.attack}{seconds}")
    written = "; ".join(parts)
    return written and f"{written[0].upper()}{written[1:]}."


def _about(document: Document) -> str:
    settings = {k: v for k, v in document.settings.items() if v is not None}
    rows = [("command", document.command), ("model", document.model), ("labels", ", ".join(document.labels))]
    rows += [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in settings.items()]
    rows += [(f"SHA-256 of the {name}", digest) for name, digest in document.hashes.items()]
    rows += [("seconds", f"{document.seconds:.1f}"), *document.versions.items()]
    written = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in rows)
    return f'<section aria-label="settings"><h2>Settings</h2><dl>{written}</dl></section>'


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
