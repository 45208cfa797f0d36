"""How many words of a text may be replaced at once, each by any of its own substitutes, until the answer changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..attack.forward import logits_of
from ..errors import CertiformerError
from ..options import CertifyQuestion, Options
from .inputs import UNKNOWN_TOKENS, Prepared, embed_ids, margins, prepare_exactly
from .substitutes import Candidates, substitutes_of
from .verdict import certify
from .workspace import Workspace

MOST_LONGER = 8  # substitutes of a text that are read as several tokens, and are put into it one by one


@dataclass(frozen=True)
class Replaced:
    """What is known of one text, with each of the budgets in order."""

    right: bool  # whether the answer to the text itself is the label
    certified: tuple[bool, ...]
    refuted: tuple[bool, ...]  # an answer that is wrong counts for every budget
    words: int  # that have substitutes
    substitutes: int
    unknown: int  # of those, how many are not in the vocabulary: read as the model reads them
    reason: str | None  # why nothing is known at the smallest budget where that is so


def replaced(
    workspace: Workspace,
    words: Sequence[str],
    candidates: Sequence[Sequence[str]],
    label: int,
    budgets: Sequence[int],
    options: Options,
) -> Replaced:
    """Whether a label is proved to stay, or seen to change, when at most so many words of a text are replaced.

    `candidates` has for every word its substitutes. A text that the model cannot read, or a word in several tokens, is
    neither proved nor refuted; substitutes in several tokens are put into the text one by one, where they are few. What
    is proved for a budget is proved for every smaller one.
    """
    nothing = (False,) * len(budgets)
    substitutes = sum(map(len, candidates))
    try:
        prepared = prepare_exactly(workspace, " ".join(words), None, options)
        listed, missing = _by_position(prepared, words, candidates)
    except CertiformerError as error:
        return Replaced(False, nothing, nothing, 0, substitutes, 0, str(error).splitlines()[0])
    found = substitutes_of(prepared, listed, None)
    longer = [(i, s) for i, others in enumerate(candidates) for s in others if s in found.skipped]
    if longer and missing is None and len(longer) <= MOST_LONGER:
        ask = partial(replaced, workspace, label=label, options=options)
        return _with_longer(ask, words, candidates, budgets, longer)
    count, unknown = sum(1 for c in candidates if c), _unknown(found)
    if prepared.label != label:
        return Replaced(False, nothing, (True,) * len(budgets), count, substitutes, unknown, None)
    flipped = _greedy(prepared, found, max(budgets))
    certified, reason = -1.0, missing
    if found.skipped:
        reason = f"not one token to the model: {found.skipped[0]}"
    elif missing is None:
        left = [b for b in budgets if b < flipped]
        listed = dict(_moving(prepared, found, listed))
        found = substitutes_of(prepared, listed, None)
        certified, changed, reason = _proved(workspace, prepared, found, listed, left, options)
        flipped = min(flipped, changed)
    refuted = tuple(budget >= flipped for budget in budgets)
    proved = tuple(b <= certified for b in budgets)
    settled = all(p or r for p, r in zip(proved, refuted, strict=True))
    return Replaced(True, proved, refuted, count, substitutes, unknown, None if settled else reason)


def _with_longer(
    ask: Callable[..., Replaced],
    words: Sequence[str],
    candidates: Sequence[Sequence[str]],
    budgets: Sequence[int],
    longer: Sequence[tuple[int, str]],
) -> Replaced:
    """With substitutes that the model reads as several tokens: none of them is used, or the last of those that are is
    this or that one, which makes another text with one replacement less. `ask` is `replaced`, of this model and label.
    """
    names = {s for _, s in longer}
    short = [tuple(s for s in others if s not in names) for others in candidates]
    parts = [ask(words, short, budgets=budgets)]
    some = [k for k, b in enumerate(budgets) if b > 0]
    for i, s in longer if some else ():
        text = (*words[:i], s, *words[i + 1 :])
        others = (*candidates[:i], (), *short[i + 1 :])
        less = ask(text, others, budgets=[budgets[k] - 1 for k in some])
        certified, refuted = dict(zip(some, less.certified, strict=True)), dict(zip(some, less.refuted, strict=True))
        where = range(len(budgets))  # with a budget of 0 there is no such text
        answers = tuple(certified.get(k, True) for k in where), tuple(refuted.get(k, False) for k in where)
        parts.append(replace(less, certified=answers[0], refuted=answers[1]))
    reasons = [p.reason for p in parts if p.reason is not None]
    return Replaced(
        right=parts[0].right,
        certified=tuple(map(all, zip(*(p.certified for p in parts), strict=True))),
        refuted=tuple(map(any, zip(*(p.refuted for p in parts), strict=True))),
        words=sum(1 for c in candidates if c),
        substitutes=sum(map(len, candidates)),
        unknown=parts[0].unknown,
        reason=next(iter(reasons), None),
    )


def _proved(
    workspace: Workspace,
    prepared: Prepared,
    found: Candidates,
    listed: Mapping[int, Sequence[str]],
    budgets: Sequence[int],
    options: Options,
) -> tuple[float, float, str | None]:
    """The largest budget that is proved, infinite where all are and -1 where none is; the least that changes the
    answer; and why others are left open. Where nothing is replaced the text is proved as it is."""
    if not prepared.movable:
        return math.inf, math.inf, None
    changed, reason = math.inf, None
    for budget in sorted({min(b, len(found.ids)) for b in budgets}, reverse=True):
        asked: dict[str, Any] = {"eps": 0.0, "positions": [min(prepared.movable)]}
        if budget:
            asked = {"substitutions": listed, "replaced": budget}
        question = CertifyQuestion(**asked, label=prepared.label, attack=False)
        assert prepared.text is not None
        result = certify(workspace, prepared.text, question, options if budget else replace(options, method="ibp"))
        if result.status == "certified":
            return (math.inf if budget == len(found.ids) else budget), changed, reason
        if result.status == "refuted":
            changed = budget
        else:
            reason = result.reason
    return -1, changed, reason


def _moving(prepared: Prepared, found: Candidates, listed: Mapping[int, Sequence[str]]) -> Mapping[int, Sequence[str]]:
    """Without substitutes that have the embedding of the word itself: whatever else is replaced, they change nothing.

    All of them where it is not known that combinations are read word by word, or where the model's own pass on ids
    tells those apart that have one embedding.
    """
    assert prepared.ids is not None
    own = prepared.ids
    pairs = [(i, t) for i, tokens in found.ids.items() for t in tokens]
    if not pairs or found.read_apart() is not None:
        return listed
    table = torch.tensor([[*own[:i], t, *own[i + 1 :]] for i, t in pairs], device=prepared.embeddings.device)
    embeddings = embed_ids(prepared.model, table, dtype=prepared.embeddings.dtype)
    still = (embeddings == prepared.embeddings).flatten(1).all(dim=1)  # [pairs]
    if not bool(still.any()):
        return listed
    with torch.no_grad():
        logits = logits_of(prepared.model.module, embeddings[still])
    if not found.faithful(table[still], embeddings[still], logits):
        return listed
    same = {pair for pair, is_same in zip(pairs, still.tolist(), strict=True) if is_same}
    kept = {i: tuple(w for w, t in c[1:] if t != own[i] and (i, t) not in same) for i, c in found.choices.items()}
    return {i: words for i, words in kept.items() if words}


def _by_position(
    prepared: Prepared, words: Sequence[str], candidates: Sequence[Sequence[str]]
) -> tuple[dict[int, Sequence[str]], str | None]:
    """The substitutes by the position of the token that a word is; what is missing where one is several tokens."""
    places = {s: i for i, s in enumerate(prepared.spans or ()) if s is not None and i in prepared.movable}
    listed: dict[int, Sequence[str]] = {}
    missing, start = None, 0
    for word, others in zip(words, candidates, strict=True):
        span = (start, start + len(word))
        start = span[1] + 1
        if others and span in places:
            listed[places[span]] = tuple(others)
        elif others:
            missing = f"not one token to the model: {word}"
    return listed, missing


def _unknown(found: Candidates) -> int:
    vocabulary, own = found.prepared.model.vocabulary, found.prepared.ids
    assert own is not None
    tokens = [t for i, choice in found.choices.items() for _, t in choice[1:] if t != own[i]]
    return sum(vocabulary[t] in UNKNOWN_TOKENS for t in tokens)


def _greedy(prepared: Prepared, found: Candidates, most: int) -> float:
    """How many words, replaced one after the other by what lowers the margin most, change the answer; else infinite.

    The text that does is run alone: what is refuted here is refuted by the model itself.
    """
    assert prepared.ids is not None
    now, least, open_positions = list(prepared.ids), math.inf, dict(found.ids)
    for count in range(1, most + 1):
        rows = [[*now[:i], token, *now[i + 1 :]] for i, tokens in open_positions.items() for token in tokens]
        if not rows:
            break
        margin, which = _least(prepared, rows)
        if margin >= least:
            break
        least, now = margin, rows[which]
        if margin <= 0 and _least(prepared, [now])[0] <= 0:
            return count
        changed = next(i for i in open_positions if now[i] != prepared.ids[i])
        del open_positions[changed]
    return math.inf


def _least(prepared: Prepared, rows: Sequence[Sequence[int]]) -> tuple[float, int]:
    """The least margin of some texts, and which has it."""
    table = torch.tensor(rows, device=prepared.embeddings.device)
    with torch.no_grad():
        found: Tensor = logits_of(
            prepared.model.module, embed_ids(prepared.model, table, dtype=prepared.embeddings.dtype)
        )
    each = margins(found, prepared.label).reshape(len(rows), -1).amin(dim=1)
    return float(each.min()), int(each.argmin())
