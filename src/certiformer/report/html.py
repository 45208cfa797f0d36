"""One self-contained HTML file from a document: no network, no scripts, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from ..numbers import at_most, down, share, up
from ..questions.importance import Ranked
from .records import Document, Place, Run, Sentence, Verdict
from .style import LEVELS, css
from .wording import MEANING, explanation, strengths, summary

_MOST_BARS = 60  # sets shown as bars and rows; a longer list keeps its smallest


def html(document: Document) -> str:
    """The report of everything in a document."""
    tabs = max((len(sentence.runs) for sentence in document.results), default=1)
    title = f"certiformer: {_plural(len(document.results), 'sentence')}, model {document.model}"
    body = "".join(_sentence(i, s) for i, s in enumerate(document.results))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css(tabs)}</style></head><body><main>"
        f"<h1>How far may each word move?</h1>"
        f'<p class="soft">{_plural(len(document.results), "sentence")}, model {escape(document.model)}, '
        f"{escape(document.created)}</p>"
        f"<p>{escape(MEANING)}</p>"
        f"{_state(document)}{body}{_about(document)}</main></body></html>\n"
    )


def _state(document: Document) -> str:
    parts = []
    if not document.complete:
        parts.append('<p class="bad">Stopped half way: this is what was finished.</p>')
    for failure in document.failures:
        line = "" if failure.line is None else f"line {failure.line}: "
        parts.append(f'<p class="bad">{escape(line + failure.message)}</p>')
    return "".join(parts)


def _sentence(index: int, sentence: Sentence) -> str:
    note = f'<p class="note small">Note: {escape(sentence.note)}.</p>' if sentence.note else ""
    return (
        f'<section aria-label="sentence {index + 1}"><div class="head">'
        f'<h2>The model says <span class="verdict">{escape(sentence.label)}</span></h2>'
        f'<span class="soft small">margin {sentence.margin:.3g}</span></div>{note}'
        f"{''.join(_verdict(v) for v in sentence.verdicts)}"
        f"{_tabs(index, sentence) if sentence.runs else _plain(sentence)}{_importance(sentence.importance)}</section>"
    )


def _plain(sentence: Sentence) -> str:
    return f'<p class="heat" style="padding-bottom:0">{escape(sentence.text)}</p>'


def _tabs(index: int, sentence: Sentence) -> str:
    switches = "".join(
        f'<input type="radio" name="t{index}" id="t{index}-{k}"{" checked" if k == _first(sentence) else ""}>'
        f'<label for="t{index}-{k}">{escape(run.norm)}</label>'
        for k, run in enumerate(sentence.runs)
    )
    panels = "".join(_panel(sentence, run) for run in sentence.runs)
    return f'<div class="tabs">{switches}{panels}</div>'


def _first(sentence: Sentence) -> int:
    """The norm shown first: l2 where there is one."""
    norms = [run.norm for run in sentence.runs]
    return norms.index("l2") if "l2" in norms else 0


def _panel(sentence: Sentence, run: Run) -> str:
    error = ""
    if run.error is not None:
        record = escape(json.dumps(run.error, indent=1, ensure_ascii=False))
        error = f'<div class="bad"><p>{escape(str(run.error.get("message", "error")))}</p><pre>{record}</pre></div>'
    return (
        f'<div class="panel">{_heat(sentence, run)}{_legend(run)}{error}'
        f"<p>{escape(_capital(summary(sentence, run)))}.</p>{_keys(run)}{_bars(run)}{_table(run)}{_costs(run)}</div>"
    )


def _heat(sentence: Sentence, run: Run) -> str:
    """The text, each word in the colour of its smallest radius, with what is known of it on hover and focus."""
    heat = strengths(sentence, run)
    parts: list[str] = []
    for before, word, position in _pieces(sentence):
        parts.append(escape(before))
        if position is None or position not in heat:
            parts.append(escape(word))
            continue
        level = round(heat[position] * (LEVELS - 1))
        told = escape(_told(sentence, run, position))
        parts.append(f'<span class="w h{level}" tabindex="0">{escape(word)}<span class="tip">{told}.</span></span>')
    hint = "Point at a word, tap it or tab to it to read its radii."
    return f'<div class="heat">{"".join(parts)}<span class="hint" aria-hidden="true">{hint}</span></div>'


def _pieces(sentence: Sentence) -> Iterable[tuple[str, str, int | None]]:
    """What stands before each token, the token as written, and its position."""
    if sentence.spans is None or not sentence.text:
        yield from ((" ", t, i) for i, t in enumerate(sentence.tokens) if not sentence.special[i])
        return
    end = 0
    for position, span in enumerate(sentence.spans):
        if span is not None and end <= span[0] <= span[1] <= len(sentence.text):
            yield sentence.text[end : span[0]], sentence.text[span[0] : span[1]], position
            end = span[1]
    yield sentence.text[end:], "", None


def _told(sentence: Sentence, run: Run, position: int) -> str:
    mine = [p for p in run.places if position in p.positions]
    place = min(mine, key=lambda p: p.certified if p.certified is not None else p.attacked or float("inf"))
    numbers = ", ".join(
        part
        for part in (
            f"certified {down(place.certified)}" if place.certified is not None else "",
            (f"attacked {up(place.attacked)}" if place.attacked is not None else "no attack found")
            if run.attack is not None
            else "",
        )
        if part
    )
    return f"{' + '.join(place.words)}: {numbers} ({run.norm}) – {explanation(place, run, sentence.label)}"


def _legend(run: Run) -> str:
    values = [p.certified if p.certified is not None else p.attacked for p in run.places]
    known = [v for v in values if v is not None]
    ramp = "".join(f'<i class="h{i}"></i>' for i in range(LEVELS))
    ends = f"{down(max(known))} to {down(min(known))}" if known else ""
    which = "certified" if any(p.certified is not None for p in run.places) else "attacked"
    return (
        f'<p class="legend"><span><span class="ramp">{ramp}</span> {which} radius {ends}: '
        f"the stronger the colour, the weaker the word</span></p>"
    )


def _keys(run: Run) -> str:
    keys = ""
    if any(place.certified is not None for place in run.places):
        keys += '<span><i class="key" style="background:var(--proved)"></i>certified (proved)</span>'
    if run.attack is not None:
        keys += '<span><i class="key" style="background:var(--reached)"></i>attacked (counterexample)</span>'
    return f'<p class="legend">{keys}</p>'


def _shown(run: Run) -> list[Place]:
    if len(run.places) <= _MOST_BARS:
        return list(run.places)
    return sorted(run.places, key=lambda p: p.certified if p.certified is not None else p.attacked or 1e300)[
        :_MOST_BARS
    ]


def _bars(run: Run) -> str:
    largest = max((v for p in run.places for v in (p.certified, p.attacked) if v is not None), default=0.0)
    scale = 100 / largest if largest > 0 else 0.0
    rows = []
    for place in _shown(run):
        inner = f'<i style="width:{place.attacked * scale:.2f}%"></i>' if place.attacked is not None else ""
        if place.certified is not None:
            inner += f'<b style="width:{place.certified * scale:.2f}%"></b>'
        rows.append(
            f'<li><span class="name">{escape(" + ".join(place.words))}</span><span class="track">{inner}</span>'
            f'<span class="num soft">{_pair(place, run)}</span></li>'
        )
    more = len(run.places) - len(rows)
    rest = f'<p class="small soft">and {more:,} more sets with larger radii</p>' if more else ""
    return f'<ul class="bars">{"".join(rows)}</ul>{rest}'


def _pair(place: Place, run: Run) -> str:
    parts = [down(place.certified)] if place.certified is not None else []
    if run.attack is not None:
        parts.append(up(place.attacked) if place.attacked is not None else "none")
    return " / ".join(parts)


def _table(run: Run) -> str:
    rows = "".join(
        f'<tr><td>{escape(" + ".join(p.words))}</td><td class="num wide">{", ".join(map(str, p.positions))}</td>'
        f'<td class="num">{down(p.certified, 4)}</td><td class="num">{up(p.attacked, 4)}</td>'
        f'<td class="num wide">{share(p.certified, p.attacked)}</td><td class="num wide">{down(p.normalized)}</td>'
        f"<td>{escape(p.replacement or p.flipped or '–')}</td></tr>"
        for p in _shown(run)
    )
    return (
        f"<details><summary>Table in {escape(run.norm)}</summary><table><thead><tr><th>word</th>"
        '<th class="wide">position</th><th>certified</th><th>attacked</th><th class="wide">proved share</th>'
        f'<th class="wide">certified / length of embedding</th><th>becomes</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></details>"
    )


def _costs(run: Run) -> str:
    parts = []
    if run.method is not None:
        calls = "" if run.calls is None else f", {run.calls:.1f} bound evaluations a set"
        seconds = "" if run.seconds is None else f" in {run.seconds:.2f} s"
        parts.append(f"certified by {run.method} with the {run.relaxation} relaxation{seconds}{calls}")
    if run.attack is not None:
        seconds = "" if run.attack_seconds is None else f" in {run.attack_seconds:.2f} s"
        parts.append(f"attacked by {run.attack}{seconds}")
    return f'<p class="small soft">{escape(_capital("; ".join(parts)))}.</p>' if parts else ""


def _verdict(verdict: Verdict) -> str:
    what = f"{' '.join(verdict.words)}: any of the substitutes given"
    if verdict.eps is not None:
        what = f"{' + '.join(verdict.words) or 'the text'} by up to {at_most(verdict.eps)} in {verdict.norm}"
    colour = "" if verdict.status == "certified" else ' style="color:var(--bad)"'
    told = f" – {verdict.message}" if verdict.message else ""
    return (
        f'<p><span class="badge"{colour}>{escape(verdict.status)}</span> {escape(what)}'
        f'<span class="soft small">{escape(told)}</span></p>'
    )


def _importance(ranked: tuple[Ranked, ...]) -> str:
    if not ranked:
        return ""
    rows = "".join(
        f'<tr><td>{escape(r.word)}</td><td class="num">{r.rank}</td><td class="num wide">{down(r.normalized)}</td>'
        f'<td class="num">{r.gradient_rank}</td><td class="num">{r.attacked_rank or "–"}</td></tr>'
        for r in ranked
    )
    return (
        '<table><caption class="soft small">Rank 1 is the most important word</caption><thead><tr><th>word</th>'
        '<th>by certified radius</th><th class="wide">radius / length</th><th>by gradient</th>'
        f"<th>by closest word</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _about(document: Document) -> str:
    settings = {k: v for k, v in document.settings.items() if v is not None}
    rows = [("command", document.command), ("model", document.model), ("labels", ", ".join(document.labels))]
    rows += [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in settings.items()]
    rows += [("seconds", f"{document.seconds:.1f}")]
    rows += list(document.versions.items())
    written = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows)
    return f'<section aria-label="settings"><h2>Settings</h2><dl>{written}</dl></section>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
