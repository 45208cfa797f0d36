"""One family of results: plain values, tables, one line, coloured words, plots; all of the same numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys

import pytest

import certiformer as cf
from certiformer.numbers import down
from certiformer.results import (
    AttackResult,
    Bounds,
    CertifyResult,
    Counterexample,
    ImportanceResult,
    RadiusResult,
    Ranked,
    Result,
)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    certifier = cf.Certifier("sst-1")
    text = "a great film"
    return {
        "radius": certifier.radius(text),
        "pairs": certifier.radius(text, words=2),
        "certify": certifier.certify(text, eps=0.01),
        "attack": certifier.attack(text, attack_steps=5, restarts=1),
        "bounds": certifier.bounds(text, eps=0.01),
        "importance": certifier.importance(text, upper=False),
    }


NAMES = ("radius", "pairs", "certify", "attack", "bounds", "importance")


@pytest.mark.parametrize("name", NAMES)
def test_every_result_can_do_everything(results, name):
    result = results[name]
    assert isinstance(result, Result)
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert set(plain) == {f.name for f in dataclasses.fields(result)}
    rows = result.rows()
    assert len(rows) == 3
    assert len({tuple(row) for row in rows}) == 1
    assert len(repr(result)) < 250
    assert "\n" not in repr(result)
    assert repr(result).startswith(type(result).__name__)
    page = result._repr_html_()
    assert page.count("<span") == page.count("</span>") == 3
    assert "great</span>" in page
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.label = 0


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_data_frames(results, name):
    pandas = pytest.importorskip("pandas")
    frame = results[name].to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(results[name].rows()[0])
    assert len(frame) == 3


@pytest.mark.parametrize("name", NAMES)
def test_bars_are_the_numbers(results, name):
    pytest.importorskip("matplotlib").use("Agg")
    axes = results[name].plot()
    drawn = [round(bar.get_width(), 12) for bar in axes.patches]
    expected = [v for _, _, values in results[name]._series() for v in values]
    assert drawn == [round(v, 12) if v is not None and math.isfinite(v) else 0 for v in expected]
    assert results[name].plot(axes) is axes


def test_what_is_not_installed_is_said(results, monkeypatch):
    for module, call, told in (
        ("pandas", results["radius"].to_pandas, r"needs pandas: pip install 'certiformer\[report\]'"),
        ("matplotlib", results["radius"].plot, r"certiformer\[report\]"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=told):
            call()


def test_a_line_rounds_to_the_safe_side(results):
    result = results["radius"]
    where, smallest = result.smallest
    assert f"smallest {down(smallest)} at {where[0]}" in repr(result)
    assert float(re.search(r"smallest (\S+)", repr(result))[1]) <= smallest
    attacked = results["attack"]
    assert float(re.search(r"smallest (\S+)", repr(attacked))[1]) >= min(attacked.radii)


def made(tokens: tuple[str, ...]) -> RadiusResult:
    return RadiusResult(
        positions=((1,), (2,)),
        radii=(0.5, math.inf),
        normalized=(0.01, math.inf),
        tokens=tokens,
        label=0,
        margin=1.0,
        norm=math.inf,
        method="ibp",
        relaxation="tight",
        chosen="ibp",
        tolerance=0.001,
        calls=1.0,
        seconds=0.1,
        complete=True,
    )


def test_words_are_never_markup_nor_control():
    page = made(("[CLS]", "<script>\x1b[31m", "b\u202e"))._repr_html_()
    assert "<script" not in page
    assert not {"\x1b", "\u202e"} & set(page)
    assert "&lt;script&gt;␛[31m" in page


def test_numbers_that_are_not_finite_are_none():
    assert made(("a", "b", "c")).to_dict()["radii"] == [0.5, None]
    json.dumps(made(("a", "b", "c")).to_dict(), allow_nan=False)


def test_what_was_not_found_and_what_was_refuted_have_a_line():
    nothing = AttackResult(((1,),), (math.inf,), (None,), (None,), (None,), ("a", "b"), 0, 1.0, 2, "gradient", 0.1)
    assert "none found" in repr(nothing)
    example = Counterexample((1,), 0.25, 1, None)
    refuted = CertifyResult(
        "refuted",
        ("refuted",),
        ((1,),),
        (-math.inf,),
        -math.inf,
        example,
        ("a", "b"),
        0,
        0.3,
        2,
        "ibp",
        "tight",
        None,
        0.1,
    )
    assert "'refuted', eps=0.3 in l2" in repr(refuted)
    assert repr(example) == "Counterexample(label 1, positions 1, radius 0.250)"
    ranked = ImportanceResult((Ranked(1, "b", 0.1, 0.2, 1, 3.0, 1),), 0, 1.0, 2, "ibp", "tight", 0.1, ("a", "b"))
    assert "b 0.200" in repr(ranked)


def test_the_family_is_what_the_package_names():
    for name in ("RadiusResult", "CertifyResult", "AttackResult", "Bounds"):
        assert issubclass(getattr(cf, name), Result)
    assert cf.Bounds is Bounds
