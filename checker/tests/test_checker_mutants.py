"""Any change of a valid certificate is rejected, or the file is still a valid proof."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from made import KINDS, folder, made, put_together, taken_apart
from mutants import mutant, violation

from certiformer_checker.__main__ import judge

# 200 in all, the dear ones least; `make slow` has 10,000 of each
QUICK = {"ball": 36, "anchors": 12, "two": 16, "l1": 16, "pieces": 10, "shares": 6, "standard": 8, "points": 96}
NODE = ("op", "inputs", "shape", "sign", "axes", "mean", "order", "axis", "start", "length", "eps")


def quiet(_: str) -> None:
    """Nobody is told how far it is."""


def judged(path: Path, words: dict, numbers: dict, model: Path | None = None) -> tuple[int, str]:
    path.write_bytes(put_together(words, numbers))
    return judge(path, model, False, quiet)


def about(words: dict, numbers: dict) -> tuple[list, dict]:
    """The function and the input that a certificate is about."""
    graph = [{k: node[k] for k in NODE if k in node} for node in words["graph"]]
    held = {n: v.astype(float).tobytes() for n, v in numbers.items() if n.startswith(("graph.", "input."))}
    return graph, held


def survey(kind: str, count: int, seed: int, path: Path) -> Counter[str]:
    """Every mutant, with the folder or without: what is accepted must withstand the attack."""
    rng, tally = random.Random(f"{kind} {seed}"), Counter[str]()
    words, numbers = taken_apart(made(kind))
    for _ in range(count):
        name, changed, held = mutant(words, numbers, rng)
        model = folder(kind) if rng.random() < 0.5 else None
        code, line = judged(path, changed, held, model)
        assert "\n" not in line
        tally["rejected" if code else "accepted"] += 1
        if code == 0:
            assert violation(changed, held, rng) <= 1e-9, f"{name}: accepted, and false"
            if model is not None:
                assert about(words, numbers) == about(changed, held), f"{name}: accepted for another model"
    return tally


@pytest.mark.parametrize("kind", sorted(QUICK))
def test_a_mutant_is_rejected_or_still_a_proof(kind: str, tmp_path: Path) -> None:
    tally = survey(kind, QUICK[kind], 1, tmp_path / "mutant.cert")
    assert tally["rejected"] > tally["accepted"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(QUICK))
def test_ten_thousand_mutants(kind: str, tmp_path: Path) -> None:
    tally = survey(kind, 10_000, 2, tmp_path / "mutant.cert")
    print(kind, dict(tally))
    assert tally["rejected"] > tally["accepted"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_file_as_written_holds_and_the_attack_agrees(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "made.cert"
    path.write_bytes(made(kind))
    code, line = judge(path, folder(kind), False, quiet)
    assert (code, line.split(":")[0]) == (0, "holds")
    assert violation(*taken_apart(made(kind)), random.Random(0)) <= 0


@pytest.mark.parametrize("change", ["margin", "radius", "label", "p"])
def test_claims_that_are_too_strong_are_seen_by_the_attack_and_rejected(change: str, tmp_path: Path) -> None:
    words, numbers = taken_apart(made("ball"))
    if change == "margin":
        numbers["claim.margin"] = numbers["claim.margin"] * 3
    elif change == "radius":
        numbers["set.radius"] = numbers["set.radius"] * 100
    elif change == "label":
        words["claim"]["label"] = 1 - words["claim"]["label"]
    else:
        words["set"]["p"], numbers["set.radius"] = "inf", numbers["set.radius"] * 10
    assert violation(words, numbers, random.Random(0)) > 0
    assert judged(tmp_path / "stronger.cert", words, numbers)[0] == 1


def test_loosened_witnesses_are_still_a_proof(tmp_path: Path) -> None:
    """A wider last box and a lower margin still follow, and the claim is the weaker one."""
    words, numbers = taken_apart(made("ball"))
    last = max(int(i) for i in words["cases"][0]["boxes"])
    numbers[f"0.box.{last}.lower"] = numbers[f"0.box.{last}.lower"] - 1e-4
    numbers["claim.margin"] = numbers["claim.margin"] / 2
    assert judged(tmp_path / "loose.cert", words, numbers, folder("ball"))[0] == 0


def test_a_box_that_is_tighter_than_what_follows_is_rejected(tmp_path: Path) -> None:
    words, numbers = taken_apart(made("ball"))
    for i in words["cases"][0]["boxes"]:
        tighter = dict(numbers)
        lower, upper = numbers[f"0.box.{i}.lower"], numbers[f"0.box.{i}.upper"]
        tighter[f"0.box.{i}.lower"] = lower + 1e-3 * (upper - lower)
        code, line = judged(tmp_path / "tight.cert", words, tighter)
        assert (code, f"box of node {i}" in line) == (1, True)


def test_a_hull_inside_of_the_ball_is_proved_by_the_same_witness(tmp_path: Path) -> None:
    words, numbers = taken_apart(made("ball"))
    x0, (position,), radius = (
        numbers["input.embeddings"],
        words["set"]["positions"],
        float(numbers.pop("set.radius")[0]),
    )
    steps = np.random.default_rng(0).normal(size=(5, x0.shape[1]))
    steps *= 0.999 * radius / np.linalg.norm(steps, axis=1, keepdims=True)
    numbers["set.vertices"], numbers["set.counts"] = (x0[position] + steps)[None], np.array([4])
    words["set"], words["model"]["kind"] = {"kind": "hull", "positions": [position]}, "graph"
    assert judged(tmp_path / "hull.cert", words, numbers)[0] == 0
    numbers["set.vertices"] = numbers["set.vertices"] + 10 * steps
    assert judged(tmp_path / "hull.cert", words, numbers)[0] == 1


def test_pieces_that_leave_a_gap_are_rejected(tmp_path: Path) -> None:
    words, numbers = taken_apart(made("pieces"))
    high = numbers["set.high"] = numbers["set.high"].copy()
    high[tuple(np.argwhere(np.isfinite(high))[0])] -= 1e-9
    code, line = judged(tmp_path / "gap.cert", words, numbers)
    assert (code, "cover" in line) == (2, True)
