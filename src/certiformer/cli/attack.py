"""`certiformer attack`"""

from __future__ import annotations

from ..options import AttackCall
from .asking import ask_radii
from .flags import Given, command
from .options import Norms, Source, Target


@command(Norms, AttackCall, Source, Target, aliases={"attack_method": "--method", "attack_steps": "--steps"})
def attack(given: Given) -> int:
    """How small a change of each word is enough to change the verdict; every one is checked by a forward pass.

    Example: [bold]certiformer attack "a great film" --method enumeration[/bold]
    """
    return ask_radii(given, "attack", certify=False, attack=True)
