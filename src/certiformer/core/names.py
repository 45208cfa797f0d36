"""What can be chosen, by name. Nothing here needs torch, so that a command line can offer it at once."""

from __future__ import annotations

from typing import Literal, get_args

Method = Literal["ibp", "forward", "backward", "backward-forward"]
AutoMethod = Literal["auto", "ibp", "forward", "backward", "backward-forward"]
Relaxation = Literal["paper", "tight"]
Budget = Literal["fast", "balanced", "tight"]
METHODS: tuple[Method, ...] = get_args(Method)
RELAXATIONS: tuple[Relaxation, ...] = get_args(Relaxation)
