"""`certiformer radius`"""

from __future__ import annotations

from ..options import AttackQuestion, Beside, RadiusCall
from .asking import ask_radii
from .flags import Given, command
from .options import Norms, Resumable, Source


@command(Norms, RadiusCall, Beside, AttackQuestion, Source, Resumable)
def radius(given: Given) -> int:
    """How far may each word move with the verdict proved unchanged, and how far does an attack need.

    Example: [bold]certiformer radius "a great film"[/bold]
    """
    return ask_radii(given, "radius", certify=True, attack=given(Beside).attack)
