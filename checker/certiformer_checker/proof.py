"""Whether a certificate holds: its cases one by one, or its points."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from certiformer_checker.case import Case, references
from certiformer_checker.certificate import Certificate, Claims
from certiformer_checker.graph import ranged
from certiformer_checker.numbers import Array, Span, require

Tell = Callable[[str], None]


def check(certificate: Certificate, tell: Tell, kind: type[Case] = Case) -> None:
    """Raises Wrong where the certificate does not hold."""
    refs = references(certificate.graph, certificate.x0)
    if not certificate.claims:
        prove_points(certificate, tell)
    for n, (claims, region) in enumerate(zip(certificate.claims, certificate.regions, strict=bool(certificate.claims))):
        case = kind(certificate.graph, region, refs, claims.witness)
        prove(case, claims, certificate.label, certificate.margin, lambda text, n=n: tell(f"case {n}, {text}"))  # type: ignore[misc]


def prove(case: Case, claims: Claims, label: int, margin: Array, tell: Tell) -> None:
    """Goes through the nodes in order: each claim must follow from those before it."""
    graph, last = case.graph, len(case.graph) - 1
    for i in range(last):
        tell(f"node {i} of {last} ({graph[i].op})")
        case.open(i)
        known = case.boxes[i]
        rows = [case.bounds(i, shift) for shift in claims.sweeps.get(i, [])]
        for s, sides in enumerate(rows if "sweep" in claims.ways.get(i, []) else []):
            cuts = claims.cuts.get((i, s), [None, None])
            low, high = (case.least(side, cut).reshape(graph[i].shape) for side, cut in zip(sides, cuts, strict=True))
            found = Span(low, -high) + case.refs[i]
            known = Span(np.maximum(known.lo, found.lo), np.minimum(known.hi, found.hi))
        case.close(i, known, claims.boxes.get(i))
        if i in claims.anchors:
            case.anchor(i, *rows[0])
        if i in claims.reaches:
            case.claim_reach(i, *rows[0], *claims.reaches[i])
    tell("the margin")
    case.open(last)
    others = [o for o in range(graph[last].shape[-1]) if o != label]
    start = np.zeros((len(others), *graph[last].shape))
    start[:, 0, label], start[np.arange(len(others)), 0, others] = 1.0, -1.0
    best = np.full(len(others), -np.inf)
    for s, shift in enumerate(claims.sweeps[last]):
        least = case.margin(start, shift, claims.cuts.get((last, s), [None])[0])
        nominal = Span(case.refs[last][0, label]) - case.refs[last][0, others]
        best = np.maximum(best, (nominal + least).lo)
    require(best >= margin, f"the margin does not follow: {best.min():.6g} is proved")


def prove_points(certificate: Certificate, tell: Tell) -> None:
    """Every combination on its own, by intervals as narrow as rounding allows."""
    graph, region, label = certificate.graph, certificate.regions[0], certificate.label
    combinations = list(itertools.product(*(range(len(v)) for v in region.vertices)))
    others = [o for o in range(graph[-1].shape[-1]) if o != label]
    step = max(1, 2**20 // max(node.size for node in graph))
    for start in range(0, len(combinations), step):
        tell(f"combination {start} of {len(combinations)}")
        chosen = combinations[start : start + step]
        x = np.repeat(certificate.x0[None, None], len(chosen), axis=0)
        for j, position in enumerate(region.positions):
            x[:, 0, position] = region.vertices[j][[c[j] for c in chosen]]
        boxes = [Span(x)]
        for node in graph[1:]:
            if node.op == "constant":
                boxes.append(Span(np.repeat(node.constants["value"][None], len(chosen), axis=0)))
            else:
                boxes.append(ranged(node, [boxes[k] for k in node.inputs]))
        found = boxes[-1][:, 0, [label]] - boxes[-1][:, 0, others]
        require(found.lo >= certificate.margin, f"the margin does not follow: {found.lo.min():.6g} is proved")
