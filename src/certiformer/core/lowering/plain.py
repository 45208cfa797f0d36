"""Calls that do nothing to numbers, and constants that take no more than their shape from the input."""

from __future__ import annotations

import torch
from torch import Tensor

from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten
PLACE = "layout device pin_memory"
COPY = "non_blocking copy memory_format"


@lowers(aten.clone.default, "self", unread="memory_format")
@lowers(aten.contiguous.default, "self", unread="memory_format")
@lowers(aten.alias.default, "self")
@lowers(aten.detach.default, "self")
@lowers(aten.lift_fresh_copy.default, "self")
@lowers(aten._to_copy.default, "self", unread=f"dtype {PLACE} non_blocking memory_format")
@lowers(aten.to.dtype, "self", unread=f"dtype {COPY}")
@lowers(aten.to.device, "self", unread=f"device dtype {COPY}")
@lowers(aten.to.dtype_layout, "self", unread=f"dtype {PLACE} {COPY}")
@lowers(aten.type_as.default, "self", unread="other")
@lowers(aten._assert_tensor_metadata.default, "a", unread="size stride dtype device layout")
def same(build: Build, x: Operand) -> Operand:
    """Copies, casts and checks: the input itself. A cast to whole numbers is refused, as any such result is."""
    return x


@lowers(aten.dropout.default, "input train", unread="p")
@lowers(aten.feature_dropout.default, "input train", unread="p")
@lowers(aten.alpha_dropout.default, "input train", unread="p")
def dropout(build: Build, x: Operand, train: bool) -> Operand:
    """Nothing, at inference."""
    if train:
        raise Refused("a dropout that drops at inference too")
    return x


@lowers(aten.zeros_like.default, "dtype", unread=f"self {PLACE} memory_format", value=0.0)
@lowers(aten.ones_like.default, "dtype", unread=f"self {PLACE} memory_format", value=1.0)
@lowers(aten.new_zeros.default, "dtype", unread=f"self size {PLACE}", value=0.0)
@lowers(aten.new_ones.default, "dtype", unread=f"self size {PLACE}", value=1.0)
@lowers(aten.full_like.default, "dtype fill_value", unread=f"self {PLACE} memory_format")
@lowers(aten.new_full.default, "dtype fill_value", unread=f"self size {PLACE}")
def filled(build: Build, dtype: torch.dtype | None, value: Operand) -> Tensor:
    """A constant of the shape of the result."""
    if isinstance(value, Ref):
        raise Refused("a value that depends on the embeddings")
    return torch.full(build.result_shape, float(value), dtype=dtype or build.like.dtype, device=build.like.device)
