"""What is measured: two tables with goals, growth along every axis, the throughput of many sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from certiformer.core.names import AutoMethod, Budget, Relaxation

# 16 words and 6: with the first and the last token 18 and 8
LONG = "the film is a funny , moving and beautifully acted story of friendship and love ."
SHORT = "lame , haphazard teen comedy ."


@dataclass(frozen=True)
class Stated:
    """A figure that was not measured here, and where it comes from."""

    what: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """One measurement: a model's size, the sentences, and how they are bounded.

    With `eps` it is one evaluation of the bounds at that radius (in units of the longest embedding), else a search.
    `value` is where the case stands on the axis of its group.
    """

    suite: str
    group: str
    name: str
    layers: int
    width: int
    value: float = 0.0
    tokens: int = 18
    words: int = 1
    sentences: int = 1
    instances: int | None = None  # at most so many sets of positions of each sentence
    text: str | None = None
    method: AutoMethod = "backward-forward"
    relaxation: Relaxation = "paper"
    budget: Budget = "balanced"
    eps: float | None = None
    asked: float | None = None
    stated: tuple[Stated, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.suite}: {self.group}: {self.name}"


def gpu_table() -> list[Case]:
    """One 18-token sentence, all 16 words, l2, relative width 1e-3, width 256, on one H200."""
    one = Case("gpu-table", "", "", 1, 256, text=LONG)
    rows: list[Case] = []
    for n, published, prototype, asked in ((1, 15.0, 0.83, 0.15), (2, 33.0, 1.4, 0.33), (3, 69.0, 2.7, 0.7)):
        stated = (
            Stated("published code, one word at a time, float32", published),
            Stated("a plain batched prototype, float64", prototype),
        )
        rows.append(replace(one, group="backward-forward", name=f"N={n}", layers=n, asked=asked, stated=stated))
    backward = replace(one, group="backward, tight", method="backward", relaxation="tight", budget="fast")
    for n, published, prototype, asked in ((1, 38.0, 8.8, 1.0), (2, 146.0, 39.0, 4.0), (3, 300.0, 87.0, 9.0)):
        stated = (
            Stated("auto_LiRPA's CROWN, one word at a time, float32", published),
            Stated("a prototype of backward with 3.1 and 3.2, float64", prototype),
        )
        rows.append(replace(backward, name=f"N={n}", layers=n, asked=asked, stated=stated))
    for n in (1, 2, 3):  # what the library does by itself, and the tightest it can do: these have no goals
        rows.append(replace(one, group="auto", name=f"N={n}", layers=n, method="auto", relaxation="tight"))
    for n in (1, 2, 3):
        rows.append(replace(backward, group="backward, tightest", name=f"N={n}", layers=n, budget="tight"))
    return rows


def cpu_table() -> list[Case]:
    """One 8-token sentence, all 6 words, l2, relative width 1e-3, on two CPU cores."""
    calls, words = 17, 6
    rows = []
    for n, width, call in ((1, 64, 0.077), (2, 64, 0.185), (1, 256, 1.5), (2, 256, 4.7), (3, 256, 9.2)):
        published = calls * words * call
        rows.append(
            Case(
                "cpu-table",
                "backward-forward",
                f"N={n} d={width}",
                n,
                width,
                tokens=8,
                text=SHORT,
                asked=published / 10,
                stated=(Stated(f"published code, {calls} calls x {words} words of {call:g} s on one core", published),),
            )
        )
    return rows


def scaling() -> list[Case]:
    """One evaluation of models with random weights, along one axis at a time."""
    one = Case("scaling", "", "", 2, 256, tokens=16, instances=6, eps=1e-3)
    rows: list[Case] = []
    for method, relaxation in (("backward-forward", "paper"), ("backward", "tight")):
        base = replace(one, method=method, relaxation=relaxation, budget="fast")  # type: ignore[arg-type]

        def axis(what: str, values: tuple[int, ...], change: Callable[[Case, int], Case], base: Case = base) -> None:
            for v in values:
                case = replace(base, group=f"{base.method}, {what}", name=f"{what}={v}", value=float(v))
                rows.append(change(case, v))

        full = method == "backward-forward"
        axis("tokens", (8, 16, 32, 64, 128) if full else (8, 16, 32, 64), lambda c, v: replace(c, tokens=v))
        axis("layers", (1, 2, 3, 6, 12) if full else (1, 2, 3, 6), lambda c, v: replace(c, layers=v))
        axis("width", (64, 128, 256, 512, 1024) if full else (64, 128, 256, 512), lambda c, v: replace(c, width=v))
        axis("moved words", (1, 2, 4), lambda c, v: replace(c, words=v))
        axis("sentences", (1, 2, 4, 8, 16, 32, 64), lambda c, v: replace(c, sentences=v, instances=None))
        if full:
            long = replace(base, group="backward-forward, 128 tokens", tokens=128, layers=3)
            rows.append(replace(long, name="3 layers of width 256, 6 words", value=6))
            rows.append(replace(long, name="3 layers of width 256, all words", value=126, instances=None))
    return rows


def throughput() -> list[Case]:
    """Many sentences of 8 to 24 tokens, searched together."""
    one = Case("throughput", "", "100 sentences", 2, 64, sentences=100, tokens=0)
    rows = [
        replace(one, group="backward-forward, d=64"),
        replace(one, group="auto, d=64", method="auto", relaxation="tight"),
    ]
    return [*rows, *(replace(r, group=r.group.replace("64", "256"), width=256) for r in rows)]


SUITES: dict[str, Callable[[], list[Case]]] = {
    "gpu-table": gpu_table,
    "cpu-table": cpu_table,
    "scaling": scaling,
    "throughput": throughput,
}


def suite(name: str) -> list[Case]:
    """The cases of a suite, or of all of them."""
    return [case for make in SUITES.values() for case in make()] if name == "all" else SUITES[name]()
