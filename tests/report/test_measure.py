"""Certified radii, attacks and words in the place of others, side by side and checked against each other."""

from __future__ import annotations

import dataclasses
import sys

import pytest

import certiformer as cf
from certiformer.attack import attack_sets
from certiformer.options import AttackQuestion, Options, Question
from certiformer.report import measure

HOW = Options(method="ibp", tolerance=0.5)


@pytest.fixture(scope="module")
def certifier() -> cf.Certifier:
    return cf.Certifier("sst-1", HOW)


def test_the_closest_word_is_that_of_the_attack_by_words(certifier: cf.Certifier) -> None:
    found = measure(certifier, "a dull film", attack=AttackQuestion(attack_steps=5), substitutes=True).runs[0]
    tried = certifier.attack("a dull film", attack_method="enumeration")
    assert found.substitute_seconds is not None
    for place, word, distance in zip(found.places, tried.words, tried.radii, strict=True):
        assert (place.substitute and place.substitute.word) == word
        if place.substitute is not None:
            assert place.substitute.distance == distance > (place.certified or 0)
            assert place.substitute.flipped == "positive"
    assert any(place.substitute for place in found.places)


def test_words_that_move_together_have_no_single_word_in_their_place(certifier: cf.Certifier) -> None:
    found = measure(certifier, "a dull film", question=Question(words=2), substitutes=True).runs[0]
    assert found.substitute_seconds is None
    assert [place.substitute for place in found.places] == [None] * 3


def test_a_word_inside_a_certified_ball_is_an_error(certifier: cf.Certifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any counterexample there is."""

    def closer(prepared, sets, how):  # type: ignore[no-untyped-def]
        found = attack_sets(prepared, sets, how)
        return dataclasses.replace(found, radii=(1e-9,) * len(sets), words=("x",) * len(sets), flipped=(1,) * len(sets))

    monkeypatch.setattr(sys.modules[measure.__module__], "attack_sets", closer)
    found = measure(certifier, "a dull film", substitutes=True).runs[0]
    assert found.error is not None
    assert "please report" in found.error["message"]
