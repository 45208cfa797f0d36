"""The style sheet of the report and the app: light and dark, wide and narrow, on a screen and on paper."""

from __future__ import annotations

from importlib.resources import files

from ..colours import DARK, LIGHT, PROVED, REACHED

_LIGHT = {
    "page": "#f7f6f3",
    "card": "#ffffff",
    "ink": "#1f1d1a",
    "soft": "#5d5952",
    "line": "#dcd8d0",
    "track": "#efece6",
    "proved": PROVED,
    "reached": REACHED,
    "bad": "#a3170c",
    "good": "#1b6b3a",
    "focus": "#1d5fa8",
    "sure": "#cfe2f6",
    "lost": "#bf4a16",
    "lostink": "#ffffff",
}
_DARK = {
    "page": "#131416",
    "card": "#1b1c1f",
    "ink": "#e9e7e2",
    "soft": "#b0aca4",
    "line": "#34363b",
    "track": "#26272b",
    "proved": "#7db4f0",
    "reached": "#32506f",
    "bad": "#ff9a88",
    "good": "#7fd39b",
    "focus": "#7db4f0",
    "sure": "#1f4468",
    "lost": "#ee9350",
    "lostink": "#1b1208",
}


def css() -> str:
    """The whole sheet: the colours, and the rules that use them."""
    rules = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    return (
        f":root{{{_names(_LIGHT)}}}{_heat(LIGHT)}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_names(_DARK)}}}{_heat(DARK)}}}{rules}"
        f"@media print{{{_lines(len(LIGHT))}}}"
    )


def _names(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _heat(ramp: tuple[tuple[str, str], ...]) -> str:
    return "".join(f".h{i}{{background:{back};color:{ink}}}" for i, (back, ink) in enumerate(ramp))


def _lines(levels: int) -> str:
    """On paper, where a colour may be grey or missing: the weaker a word, the thicker the line below it."""
    return "".join(f".h{i}{{text-decoration:underline {i}px;text-underline-offset:.3em}}" for i in range(1, levels))
