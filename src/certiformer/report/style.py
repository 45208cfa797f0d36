"""The report's style sheet: light and dark, wide and narrow, with no file beside it."""

from __future__ import annotations

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
}
_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;color-scheme:light dark}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1rem;margin:0;font-weight:600}
p{margin:.5rem 0}
.soft{color:var(--soft)}
.small{font-size:.875rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:1.25rem;margin:1.25rem 0}
.head{display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:baseline;justify-content:space-between}
.verdict{font-weight:600}
.badge{display:inline-block;border:1px solid currentColor;border-radius:1rem;padding:0 .6rem;font-size:.875rem}
.note,.bad{border-left:.25rem solid var(--line);padding-left:.75rem}
.bad{border-color:var(--bad);color:var(--bad);overflow-wrap:anywhere}
.heat{font-size:1.3rem;line-height:2;margin:.75rem 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
.w{padding:.14em .16em;border-radius:.3em;cursor:default}
.w:hover,.w:focus{outline:2px solid var(--focus);outline-offset:1px}
.tip{min-height:2.8rem;margin:.4rem 0 0}
.legend{display:flex;flex-wrap:wrap;gap:.4rem 1.5rem;align-items:center;font-size:.8125rem;color:var(--soft)}
.legend span{display:inline-flex;gap:.4rem;align-items:center}
.ramp{gap:0!important}
.ramp i{display:block;width:1.1rem;height:.8rem}
.key{width:1.4rem;height:.7rem;border-radius:.2rem;display:inline-block}
.proved{background:var(--proved)}
.reached{background:var(--reached)}
.bars{margin:.5rem 0 0;padding:0;list-style:none}
.bars li{display:grid;grid-template-columns:minmax(4.5rem,9rem) 1fr 8.5rem;gap:.75rem;align-items:center;
padding:.16rem 0;font-size:.875rem}
.name{overflow-wrap:anywhere;text-align:right}
.track{position:relative;height:1.05rem;background:var(--track);border-radius:.25rem;overflow:hidden}
.track b,.track i{position:absolute;left:0;top:0;bottom:0;border-radius:.25rem}
.track i{background:var(--reached)}
.track b{background:var(--proved);top:.25rem;bottom:.25rem}
.num{font-variant-numeric:tabular-nums;white-space:nowrap}
.body details,.bad{margin-top:1rem}
summary{cursor:pointer;font-size:.875rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:.6rem 1.25rem;margin:.5rem 0}
.card>summary{display:flex;gap:.75rem;align-items:baseline;list-style-position:inside}
.card>summary .line{flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:1rem}
.card[open]>summary .line{visibility:hidden}
.line .w{padding:.05em .1em}
.end{text-align:right;display:flex;gap:.4rem;align-items:baseline;flex-wrap:wrap;justify-content:flex-end;max-width:60%}
.body{padding-bottom:.6rem}
.controls{display:flex;flex-wrap:wrap;gap:.6rem 1.25rem;align-items:center;margin:1rem 0}
.choice{display:inline-flex;gap:.35rem;align-items:center;flex-wrap:wrap}
button,input{font:inherit;font-size:.875rem;color:var(--ink);background:var(--card);border:1px solid var(--line);
border-radius:1rem;padding:.25rem .8rem}
button{cursor:pointer}
button[aria-pressed=true]{background:var(--ink);color:var(--card);border-color:var(--ink)}
button:disabled{opacity:.4;cursor:default}
button:focus-visible,input:focus-visible,summary:focus-visible{outline:2px solid var(--focus);outline-offset:2px}
.certified{color:var(--good)}
.refuted,.error{color:var(--bad)}
table{border-collapse:collapse;width:100%;font-size:.875rem;margin-top:.5rem}
th,td{text-align:right;padding:.3rem .4rem;border-bottom:1px solid var(--line);vertical-align:top}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}
th{font-weight:600;color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.875rem;margin:.5rem 0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.75rem}
@media (max-width:34rem){
section{padding:1rem .85rem}
.bars li{grid-template-columns:1fr auto;gap:0 .75rem;padding:.3rem 0}
.name{text-align:left}
.bars .track{grid-row:2;grid-column:1/-1}
.wide{display:none}
.heat{font-size:1.15rem}
.card{padding:.6rem .85rem}
.card>summary{flex-wrap:wrap}
.card>summary .line{flex-basis:70%}
.end{max-width:100%}
}
@media print{.controls,.tip{display:none}}
"""


def css() -> str:
    """The whole sheet."""
    return (
        f":root{{{_names(_LIGHT)}}}{_heat(LIGHT)}"
        f"@media (prefers-color-scheme:dark){{:root{{{_names(_DARK)}}}{_heat(DARK)}}}{_RULES}"
    )


def _names(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _heat(ramp: tuple[tuple[str, str], ...]) -> str:
    return "".join(f".h{i}{{background:{back};color:{ink}}}" for i, (back, ink) in enumerate(ramp))
