"""Which radii are proved for every word: the same as asking everything, with fewer questions."""

from __future__ import annotations

import random

import pytest

from certiformer.sweep.levels import Level


def run(level: Level, truth: list[int]) -> list[tuple[int, int]]:
    """Answer all questions as words do of which `truth[k]` radii can be proved; what was asked."""
    asked: list[tuple[int, int]] = []
    while (aim := level.aim) is not None:
        sets, at = aim
        assert sets
        assert 1 <= at <= level.most
        asked += [(k, at) for k in sets]
        level.take(sets, at, [truth[k] >= at for k in sets])
    return asked


@pytest.mark.parametrize("known", [False, True])
def test_the_answer_is_the_least_and_nothing_is_asked_twice(known):
    drawn = random.Random(0)
    for _ in range(2000):
        words, most = drawn.randint(1, 7), drawn.randint(0, 9)
        truth = [drawn.randint(0, most) for _ in range(words)]
        first = [drawn.randrange(words)] if known else list(range(words))
        level = Level(words, most, first)
        asked = run(level, truth)
        assert level.reached == min(truth)
        assert all(count <= truth[k] for k, count in enumerate(level.proved))  # nothing that no answer proved
        assert len(asked) == len(set(asked))
        if min(truth) < most:
            assert all(truth[k] == min(truth) for k in level.weakest)


def test_few_questions_where_the_weakest_word_is_known():
    truth = [8, 7, 3, 9, 6, 5]
    asked = run(Level(6, 9, [2]), truth)
    assert [k for k, _ in asked[:-5]] == [2] * (len(asked) - 5)  # by halves of one word
    assert asked[-5:] == [(k, 3) for k in (0, 1, 3, 4, 5)]  # the others once


def test_what_is_not_proved_may_be_asked_in_another_way_and_what_is_stays():
    level = Level(3, 4, [1])
    run(level, [2, 1, 3])
    assert (level.reached, level.weakest) == (1, [1])
    level.again()
    asked = run(level, [4, 3, 3])
    assert level.reached == 3
    assert all(at > 1 for _, at in asked)


def test_an_answer_that_does_not_fit_its_question_is_an_error():
    level = Level(2, 1, [0, 1])
    with pytest.raises(ValueError):
        level.take([0, 1], 1, [True])
