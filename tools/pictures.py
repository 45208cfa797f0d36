"""Draws docs/images/ball.png: the balls around a word, in a plane through what was really found.

python tools/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Circle

import certiformer as cf
from certiformer.numbers import down, up

SENTENCE, WORD = "the plot is thin but the cast is wonderful", "thin"
OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "ball.png"
PROVED, REACHED, INK, PALE = "#0072b2", "#d55e00", "#222222", "#666666"  # told apart by colour-blind people


def main() -> None:
    """Ask, and draw."""
    model = cf.load()
    certifier = cf.Certifier(model)
    proved = certifier.radius(SENTENCE, positions=WORD)
    found = certifier.attack(SENTENCE, positions=WORD)
    words = certifier.attack(SENTENCE, positions=WORD, attack_method="enumeration")
    (position,) = proved.positions[0]
    assert model.embed is not None
    assert model.tokenizer is not None
    assert found.points[0] is not None
    ids = torch.tensor([model.tokenizer.encode(SENTENCE).ids])
    centre = model.embed(ids)[0, position].double()
    attack = found.points[0][0, position].double() - centre
    word = words.words[0]
    assert word is not None
    closest = model.embed(torch.tensor([[model.vocabulary.index(word)]]))[0, 0].double()
    closest = closest - model.embed(torch.tensor([[ids[0, position]]]))[0, 0].double()
    across = attack / attack.norm()
    beside = closest - (closest @ across) * across
    beside = beside / beside.norm()
    draw(proved.radii[0], found.radii[0], (float(closest @ across), float(closest @ beside)), word)


def draw(proved: float, attacked: float, closest: tuple[float, float], word: str) -> None:
    """The picture, given the two radii and where the closest word lies."""
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained", dpi=130)
    axes.add_patch(Circle((0, 0), attacked, fill=False, edgecolor=REACHED, linewidth=1.6, linestyle="--"))
    axes.add_patch(Circle((0, 0), proved, facecolor=PROVED, alpha=0.22))
    axes.add_patch(Circle((0, 0), proved, fill=False, edgecolor=PROVED, linewidth=1.8))
    axes.plot(0, 0, "o", color=INK, markersize=6)
    axes.annotate(f"'{WORD}'", (0, 0), (4, 5), textcoords="offset points", fontsize=12, color=INK)
    axes.plot(attacked, 0, "X", color=REACHED, markersize=9)
    axes.annotate(
        f"a point that changes the verdict\nfound by the attack, {up(attacked)} away",
        (attacked, 0),
        (26, -34),
        textcoords="offset points",
        fontsize=10,
        color=REACHED,
        arrowprops={"arrowstyle": "-", "color": REACHED},
    )
    axes.annotate(
        f"proved: nothing in here\nchanges the verdict\nradius {down(proved)}",
        (-proved * 0.62, proved * 0.62),
        (-118, 34),
        textcoords="offset points",
        fontsize=10,
        color=PROVED,
        arrowprops={"arrowstyle": "-", "color": PROVED},
    )
    axes.plot(*closest, "s", color=PALE, markersize=6)
    axes.annotate(
        f"'{word}', the closest word\nthat changes the verdict",
        closest,
        (8, -4),
        textcoords="offset points",
        fontsize=10,
        color=PALE,
    )
    reach = max(abs(closest[0]), abs(closest[1]), attacked) * 1.15
    axes.set_xlim(-reach * 1.25, reach * 1.6)
    axes.set_ylim(-attacked * 1.25, max(closest[1], attacked) * 1.2)
    axes.set_aspect("equal")
    axes.set_axis_off()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT, metadata={"Software": None})


if __name__ == "__main__":
    main()
