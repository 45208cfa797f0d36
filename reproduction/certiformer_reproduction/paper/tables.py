"""The five tables as data: which models, norms and methods, and beside them the paper's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from . import published

DATASETS = ("sst", "yelp")
NORMS = (1.0, 2.0, math.inf)
Published = Mapping[tuple[str, str], published.Figures]


@dataclass(frozen=True)
class Subject:
    """A model of a table; `folder` is its name in the zoo."""

    folder: str
    data: str
    layers: int
    layer_norm: str = "no_var"


@dataclass(frozen=True)
class Table:
    """What a table is made of. `ratios` are (title, numerator, denominator), of minima and of averages.

    Methods in `extra` are slow, or beside the point: they are run only where they are asked for by name.
    """

    name: str
    title: str
    subjects: tuple[Subject, ...]
    ways: tuple[str, ...]
    published: Published
    source: str  # the paper's table
    norms: tuple[float, ...] = NORMS
    words: int = 1
    sentences: int = 10
    longest: int = 32
    timed: bool = False
    shows_layer_norm: bool = False
    extra: tuple[str, ...] = ()
    ratios: tuple[tuple[str, str, str], ...] = ()


def _subjects(layers: tuple[int, ...], layer_norms: tuple[str, ...] = ("no_var",)) -> tuple[Subject, ...]:
    return tuple(
        Subject(f"{data}_{n}" + ("" if norm == "no_var" else f"_{norm}"), data, n, norm)
        for data in DATASETS
        for n in layers
        for norm in layer_norms
    )


MAIN = Table(
    "main",
    "One position",
    _subjects((1, 2, 3)),
    ("upper", "gradient", "ibp", "paper", "ours-quick", "ours"),
    published.MAIN,
    "results_main",
    extra=("ours-quick",),
    ratios=(
        ("paper's method / upper", "paper", "upper"),
        ("ours / upper", "ours", "upper"),
        ("ours / gradient", "ours", "gradient"),
        ("ours / paper's method", "ours", "paper"),
    ),
)
TWO_POSITIONS = Table(
    "two-positions",
    "Two positions",
    _subjects((1, 2, 3)),
    ("gradient", "ibp", "paper", "ours"),
    published.TWO_POSITIONS,
    "results_main_2",
    norms=(2.0,),
    words=2,
    longest=16,
    ratios=(("ours / gradient", "ours", "gradient"), ("ours / paper's method", "ours", "paper")),
)
ABLATION = Table(
    "ablation",
    "Forward, backward, and both",
    tuple(Subject(f"{data}_1_small", data, 1) for data in DATASETS),
    ("gradient", "forward", "backward", "paper", "ours-quick", "ours", "ours-steps"),
    published.ABLATION,
    "results_fb_ablation",
    timed=True,
    extra=("ours-steps",),
    ratios=(("ours / gradient", "ours", "gradient"), ("ours / paper's method", "ours", "paper")),
)
WORDS = Table(
    "words",
    "Important words",
    _subjects((1,)),
    ("grad", "upper", "paper", "ours"),
    {},
    "results_important_words",
    norms=(2.0,),
    sentences=100,
)
LAYER_NORM = Table(
    "layernorm",
    "LayerNorm",
    _subjects((1, 2), ("standard", "none", "no_var")),
    ("upper", "gradient", "paper", "ours"),
    published.LAYER_NORM,
    "results_layer_norm",
    shows_layer_norm=True,
    ratios=(
        ("paper's method / upper", "paper", "upper"),
        ("ours / upper", "ours", "upper"),
        ("ours / gradient", "ours", "gradient"),
        ("ours / paper's method", "ours", "paper"),
    ),
)
TABLES = {table.name: table for table in (MAIN, TWO_POSITIONS, ABLATION, WORDS, LAYER_NORM)}
