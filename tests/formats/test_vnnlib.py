"""Properties as text: what they say is kept exactly, whatever is not understood is an error in one line."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from certiformer.errors import InputError
from certiformer.formats import parse_vnnlib, read_vnnlib

HEAD = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)\n"
BOUNDS = "(assert (>= X_0 -0.1)) (assert (<= X_0 1e-1)) (assert (and (>= X_1 0) (<= X_1 2.5E+0)))\n"
NEW = "(vnnlib-version <2.0>) (declare-network f (declare-input A float32 [1,2]) (declare-output B Real [1, 2]))\n"


def exact(*values: str) -> tuple[Fraction, ...]:
    return tuple(Fraction(v) for v in values)


def test_numbers_are_those_that_are_written() -> None:
    query = parse_vnnlib(HEAD + BOUNDS + "(assert (<= Y_0 Y_1)) ; a comment (\n")
    assert len(query.cases) == 1
    case = query.cases[0]
    assert (case.lower, case.upper) == (exact("-1/10", "0"), exact("1/10", "5/2"))
    assert case.holds(exact("1/10", "0"), exact("1", "1"))
    assert not case.holds(exact("1/10", "0"), exact("1", "0.999999999999999999999"))
    assert not case.holds((Fraction(0.1), Fraction(0)), exact("1", "1"))  # the float is a little more than a tenth


def test_inputs_and_outputs_may_be_one_of_several() -> None:
    text = "(assert (<= Y_0 0)) (assert (or (and (<= X_1 1) (>= X_1 0) (<= Y_1 0.5)) (and (<= X_1 3) (>= X_1 2))))"
    query = parse_vnnlib(HEAD + "(assert (>= X_0 0)) (assert (<= X_0 0))" + text)
    assert [(c.lower[1], c.upper[1], len(c.rows)) for c in query.cases] == [(0, 1, 2), (2, 3, 1)]


def test_cases_without_an_input_are_left_out() -> None:
    query = parse_vnnlib(HEAD + BOUNDS + "(assert (or (<= X_0 -1) (<= Y_0 0)))")
    assert (len(query.cases), query.empty) == (1, 1)


@pytest.mark.parametrize(
    ("written", "at", "holds"),
    [
        ("(< Y_0 Y_1)", ("1", "1"), False),
        ("(> Y_1 Y_0)", ("1", "2"), True),
        ("(= Y_0 2)", ("2", "0"), True),
        ("(!= Y_0 2)", ("2", "0"), False),
        ("(!= Y_0 2)", ("3", "0"), True),
        ("(<= (+ (* 2 Y_0) (- Y_1) 1) 0)", ("1", "3"), True),
        ("(<= (- Y_0 Y_1 1) 0)", ("3", "1"), False),
        ("(<= (* Y_0 0.5 4) 1)", ("0.5", "0"), True),
        ("(or (<= Y_0 0) (and (>= Y_0 1) (or (<= Y_1 0) (>= Y_1 5))))", ("2", "5"), True),
        ("(or (<= Y_0 0) (and (>= Y_0 1) (or (<= Y_1 0) (>= Y_1 5))))", ("2", "4"), False),
        ("(<= (+ X_0 Y_0) 1)", ("1", "0"), True),
        ("(<= (+ X_0 X_1) -1)", ("1", "0"), False),
    ],
)
def test_conditions_are_what_they_say(written: str, at: tuple[str, str], holds: bool) -> None:
    query = parse_vnnlib(HEAD + BOUNDS + f"(assert {written})")
    assert any(case.holds(exact("0", "0"), exact(*at)) for case in query.cases) == holds


def test_version_2_names_tensors_and_places() -> None:
    bounds = "(assert (and (>= A[0,0] 0) (<= A [0,0] 1) (>= A[0,1] 2) (<= A[0,1] 3)))"
    query = parse_vnnlib(NEW + bounds + "(assert (<= B[0,1] B[0,0]))")
    assert (query.version, query.input.name, query.output.shape) == ("2.0", "A", (1, 2))
    assert query.cases[0].lower == exact("0", "2")
    assert query.cases[0].holds(exact("0", "2"), exact("1", "1"))


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib.gz"
    path.write_bytes(gzip.compress((HEAD + BOUNDS + "(assert (<= Y_0 0))").encode()))
    assert len(read_vnnlib(path).cases) == 1


WRONG = {
    "": "holds no condition",
    "hello": "expected a parenthesis",
    "(assert": "never closed",
    ")": "not opened",
    "(" * 100: "parentheses inside each other",
    HEAD: "asserts nothing",
    HEAD + "(assert (<= Y_0 0))": "X_0 has no lower bound",
    HEAD + "(assert (<= X_0 0)) (assert (<= Y_0 0))": "X_0 has no lower bound",
    HEAD + "(assert (>= X_0 0)) (assert (<= Y_0 0))": "X_0 has no upper bound",
    HEAD + BOUNDS + "(assert (>= X_0 5))": "X_0 must be at least 5 and at most 0.1",
    HEAD + BOUNDS + "(assert (>= X_0 1e999))": "X_0 must be at least 1.00000e+999 and at most 0.1",
    HEAD + BOUNDS + "(assert (or (>= X_0 5) (<= X_1 -1)))": "bounds of any case",
    HEAD + BOUNDS + "(assert (<= Y_7 0))": "'Y_7' is neither a number nor a variable",
    HEAD + BOUNDS + "(assert (<= Z 0))": "'Z' is neither",
    HEAD + BOUNDS + "(assert (<= Y_0 nan))": "'nan' is neither",
    HEAD + BOUNDS + "(assert (<= Y_0 inf))": "'inf' is neither",
    HEAD + BOUNDS + "(assert (<= Y_0 1e9999))": "is neither",
    HEAD + BOUNDS + "(assert (<= Y_0 0x10))": "is neither",
    HEAD + BOUNDS + "(assert (<= Y_0))": "compares two numbers",
    HEAD + BOUNDS + "(assert (<= Y_0 0 1))": "compares two numbers",
    HEAD + BOUNDS + "(assert (<= (* Y_0 Y_1) 0))": "must be linear",
    HEAD + BOUNDS + "(assert (<= (/ Y_0 2) 0))": "expected +, - or *",
    HEAD + BOUNDS + "(assert (not (<= Y_0 0)))": "expected <=",
    HEAD + BOUNDS + "(assert (or))": "without anything in it",
    HEAD + BOUNDS + "(assert)": "assert takes one condition",
    HEAD + BOUNDS + "(assert Y_0)": "expected a comparison",
    HEAD + "(declare-const X_0 Real)": "declared twice",
    HEAD + "(declare-const X_3 Real) (assert (<= Y_0 0))": "X_3 but not X_2",
    "(declare-const X_0 Int)": "expected Real",
    "(declare-const foo Real)": "expected a name such as X_0",
    "(declare-const X_0 Real) (assert (<= X_0 0))": "no output Y_0",
    "(import os)": "expected declare-const or assert",
    HEAD + BOUNDS + '(assert (<= Y_0 "0"))': "expected a number or a variable",
    NEW.replace("2.0", "3.0"): "expected <2.0>",
    NEW + NEW: "a second network",
    NEW.replace("float32", "string"): "expected real",
    NEW.replace("[1,2]", "[0]"): "has the shape [0]",
    NEW.replace("[1,2]", "[999999,999999]"): "has the shape",
    NEW.replace("[1,2]", "[a]"): "expected whole numbers in brackets",
    NEW.replace("(declare-output", "(declare-hidden"): "one input and one output",
    NEW + "(assert (<= B[0,2] 0))": "not in the shape",
    NEW + "(assert (<= B 0))": "not in the shape",
    NEW + "(assert (<= B[0,0] 0))": "A[0,0] has no lower bound",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text])
def test_what_is_wrong_is_told_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as told:
        parse_vnnlib(text)
    assert WRONG[text] in str(told.value)
    assert "\n" not in str(told.value)


def test_too_many_cases_are_refused_before_they_are_written_out() -> None:
    either = "(assert (or (<= Y_0 0) (<= Y_1 0)))"
    with pytest.raises(InputError, match="more than 100,000 cases"):
        parse_vnnlib(HEAD + BOUNDS + 40 * either)
