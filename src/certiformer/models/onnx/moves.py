"""Operators that move entries around, and those that make and read shapes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .table import Call, Refused, axis_of, fits, is_float, operator, scalar, whole

FLOATS, WHOLE, TRUTH = (1, 10, 11, 16), (2, 3, 4, 5, 6, 7, 12, 13), 9  # types of numbers, as ONNX counts them


@operator("Identity", "Dropout")
def identity(call: Call, x: Tensor, *rest: Any) -> Tensor:
    if call.outputs != 1:
        raise Refused("the mask of a Dropout as output")
    return x


@operator("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    """Between kinds of numbers; real numbers stay the real numbers they are."""
    to = call.get("to")
    if to in FLOATS:
        return x if is_float(x) else x.to(torch.float64)
    if to in WHOLE and not is_float(x):
        return x.to(torch.int64)
    if to in WHOLE:
        return x.trunc().to(torch.int64)
    if to == TRUTH:
        return x != 0
    raise Refused(f"a cast to type {to}")


@operator("Constant", constant=True)
def constant(call: Call) -> Tensor:
    """Its value, which the importer has made a tensor."""
    found = [v for v in call.attributes.values() if isinstance(v, Tensor)]
    if len(found) == 1:
        return found[0]
    name, value = next(iter(call.attributes.items()), ("", None))
    if name in ("value_float", "value_floats"):
        return torch.tensor(value, dtype=torch.float64)
    if name in ("value_int", "value_ints"):
        return torch.tensor(value, dtype=torch.int64)
    raise Refused(f"a constant given as {name or 'nothing'}")


@operator("ConstantOfShape", static=(0,), constant=True)
def constant_of_shape(call: Call, shape: Any) -> Tensor:
    sizes = whole(shape)
    fits(*sizes)
    value = call.get("value")
    return torch.zeros(sizes, dtype=torch.float64) if value is None else value.reshape(-1)[0].expand(sizes).clone()


@operator("Range", static=(0, 1, 2), constant=True)
def arange(call: Call, start: Any, limit: Any, step: Any) -> Tensor:
    first, last, by = (scalar(v, 0.0) or 0.0 for v in (start, limit, step))
    if by == 0 or not math.isfinite(first + last + by):
        raise Refused("a Range without end")
    fits(math.ceil((last - first) / by))
    found = torch.arange(first, last, by, dtype=torch.float64)
    return found.to(torch.int64) if all(isinstance(v, int) for v in (start, limit, step)) else found


@operator("Reshape", static=(1,))
def reshape(call: Call, x: Tensor, shape: Any) -> Tensor:
    """0 keeps a size (unless `allowzero`), -1 is what is left."""
    sizes = whole(shape)
    if not call.get("allowzero", 0):
        if any(s == 0 and i >= x.dim() for i, s in enumerate(sizes)):
            raise Refused(f"a Reshape of {list(x.shape)} to {sizes}")
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = call.get("axis", 1)
    axis = x.dim() if axis == x.dim() else axis_of(axis, x.dim())
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.get("perm", list(reversed(range(x.dim())))))


@operator("Squeeze", static=(1,))
def squeeze(call: Call, x: Tensor, axes: Any = None) -> Tensor:
    chosen = call.get("axes") if axes is None else whole(axes)
    gone = {i for i, s in enumerate(x.shape) if s == 1} if chosen is None else {axis_of(a, x.dim()) for a in chosen}
    if any(x.shape[i] != 1 for i in gone):
        raise Refused(f"a Squeeze of {list(x.shape)} along {sorted(gone)}")
    return x.reshape([s for i, s in enumerate(x.shape) if i not in gone])


@operator("Unsqueeze", static=(1,))
def unsqueeze(call: Call, x: Tensor, axes: Any = None) -> Tensor:
    chosen = whole(call.get("axes") if axes is None else axes)
    rank = x.dim() + len(chosen)
    new = {axis_of(a, rank) for a in chosen}
    old = iter(x.shape)
    return x.reshape([1 if i in new else next(old) for i in range(rank)])


@operator("Slice", static=(1, 2, 3, 4))
def cut(call: Call, x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Tensor:
    """Attributes before version 10, inputs since."""
    first = whole(call.get("starts") if starts is None else starts)
    last = whole(call.get("ends") if ends is None else ends)
    given = call.get("axes") if axes is None else axes
    along = list(range(len(first))) if given is None else whole(given)
    by = [1] * len(first) if steps is None else whole(steps)
    for start, end, axis, step in zip(first, last, along, by, strict=True):
        axis = axis_of(axis, x.dim())
        chosen = range(x.shape[axis])[slice(start, max(end, -(1 << 62)), step)] if step else range(0)
        if step <= 0:
            if step == 0:
                raise Refused("a Slice with step 0")
            x = x.index_select(axis, torch.tensor(list(chosen), device=x.device))
            continue
        x = x[(slice(None),) * axis + (slice(chosen.start, chosen.stop, step),)]
    return x


@operator("Gather", static=(1,))
def gather(call: Call, x: Tensor, index: Any) -> Tensor:
    """Entries of an axis by constant numbers, which may count from the end."""
    axis = axis_of(call.get("axis", 0), x.dim())
    chosen = torch.tensor(index, dtype=torch.int64)
    if bool(((chosen < -x.shape[axis]) | (chosen >= x.shape[axis])).any()):
        raise Refused(f"a Gather beyond the {x.shape[axis]} entries of an axis")
    numbers = [i % x.shape[axis] for i in chosen.flatten().tolist()]
    if chosen.dim() == 0:
        return x.select(axis, numbers[0])
    found = x.index_select(axis, torch.tensor(numbers, dtype=torch.int64, device=x.device))
    return found.reshape(*x.shape[:axis], *chosen.shape, *x.shape[axis + 1 :])


@operator("Concat")
def concat(call: Call, *parts: Tensor) -> Tensor:
    return torch.cat(list(parts), dim=axis_of(call.get("axis"), parts[0].dim()))


@operator("Split", static=(1,))
def split(call: Call, x: Tensor, sizes: Any = None) -> list[Tensor]:
    """Pieces of given sizes, or of one size with a smaller one at the end."""
    axis = axis_of(call.get("axis", 0), x.dim())
    given = call.get("split") if sizes is None else whole(sizes)
    if given is None:
        each = -(-x.shape[axis] // call.get("num_outputs", call.outputs))
        given = [min(each, x.shape[axis] - k) for k in range(0, x.shape[axis], each)]
    if sum(given) != x.shape[axis] or len(given) != call.outputs or min(given) < 0:
        raise Refused(f"a Split of {x.shape[axis]} entries into {given}")
    return list(torch.split(x, given, dim=axis))


@operator("Expand", static=(1,))
def expand(call: Call, x: Tensor, shape: Any) -> Tensor:
    target = torch.broadcast_shapes(x.shape, whole(shape))  # type: ignore[no-untyped-call]
    fits(*target)
    return x.expand(target)


@operator("Tile", static=(1,))
def tile(call: Call, x: Tensor, repeats: Any) -> Tensor:
    times = whole(repeats)
    fits(x.numel(), *times)
    return x.repeat(times)


@operator("Pad", static=(1, 2, 3))
def pad(call: Call, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    call.refuse_unless("mode", "constant")
    widths = whole(call.get("pads") if pads is None else pads)
    filled = scalar(value, call.get("value", 0.0))
    along = list(range(x.dim())) if axes is None else [axis_of(a, x.dim()) for a in whole(axes)]
    count = len(along)
    if len(widths) != 2 * count:
        raise Refused(f"a Pad of {count} axes by {len(widths)} numbers")
    before, after = [0] * x.dim(), [0] * x.dim()
    for k, axis in enumerate(along):
        before[axis], after[axis] = widths[k], widths[count + k]
    fits(*(s + b + a for s, b, a in zip(x.shape, before, after, strict=True)))
    flat = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return F.pad(x, flat, value=filled) if any(flat) else x


@operator("Where")
def where(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if condition.dtype != torch.bool:
        raise Refused("a condition that is not made of truth values")
    return torch.where(condition, x, y)


@operator("Trilu", static=(1,), constant=True)
def triangle(call: Call, x: Tensor, k: Any = None) -> Tensor:
    by = int(scalar(k, 0.0) or 0)
    return torch.triu(x, by) if call.get("upper", 1) else torch.tril(x, by)
