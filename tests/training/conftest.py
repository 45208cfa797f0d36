"""What the tests of training share: one thread, and texts that are easy to learn."""

from __future__ import annotations

import random

import pytest
import torch

from certiformer.data import Dataset, Example


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made_up(count: int, seed: int) -> tuple[Example, ...]:
    """Texts whose label is the one telling word among fillers."""
    dice = random.Random(seed)
    examples = []
    for _ in range(count):
        label = dice.randrange(2)
        words = [dice.choice(["the", "a", "film", "was", "it", "so", "and"]) for _ in range(dice.randrange(1, 9))]
        words.insert(dice.randrange(len(words) + 1), dice.choice((("bad", "dull"), ("good", "fine"))[label]))
        examples.append(Example(label, tuple(words)))
    return tuple(examples)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("made-up", made_up(200, 0), made_up(60, 1), made_up(60, 2))
