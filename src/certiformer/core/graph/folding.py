"""What a model computes of its constants alone is computed once, here in float64: is it the same in float32?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops.rounded import representable

# calls that choose among numbers
CHOOSING = """
    _reshape_alias _to_copy _unsafe_view abs alias amax amin cat chunk clamp clamp_max clamp_min clone contiguous copy
    detach diagonal embedding expand expand_as fill flatten flip full full_like gather index index_select
    lift_fresh_copy masked_fill max maximum min minimum movedim narrow neg new_full new_ones new_zeros ones ones_like
    permute relu repeat reshape roll scalar_tensor select select_scatter slice slice_scatter split split_with_sizes
    squeeze stack t to transpose tril triu type_as unbind unsqueeze view where zeros zeros_like
"""
ROUNDED_ONCE = ("add", "arange", "div", "mul", "rsub", "sub")  # from the exact result


def same_in_float32(operator: Any, given: Any, result: Any) -> bool:
    """Whether a call among constants gives in float32 the float32 numbers next to what it gives here."""
    name = operator._schema.name.partition("::")[2]
    if name in CHOOSING.split():
        return True
    exact = all(representable(x.double()) for x in _numbers(given))
    if not any(x.is_floating_point() for x in _numbers(result)):
        return exact
    return name in ROUNDED_ONCE and exact and all(representable(x.double()) for x in _numbers(result))


def _numbers(x: Any) -> list[Tensor]:
    if isinstance(x, (tuple, list)):
        return [t for a in x for t in _numbers(a)]
    if isinstance(x, float):
        return [torch.tensor(x, dtype=torch.float64)]
    return [x] if isinstance(x, Tensor) else []
