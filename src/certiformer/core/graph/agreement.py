"""Whether a graph is the module: every operator on its own as it is captured, and the whole at every input asked about.

What may differ is rounding, and no more than that. Everything is relative to the size of the numbers compared.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import ModelError, title
from ..lowering import Ref
from ..ops.base import ulp
from .graph import Graph

DISTANCES = (0.0, 0.1, 1.0, 10.0)  # of the points compared, in units of the spread of the example
ROOM = 64.0  # times the rounding that is expected
MOST = 0.01  # of a logit that rounding may explain: beyond, nothing is compared any more
MASKS = 1e30  # numbers of this size mask others: what is computed is not of their size


def points(example: Tensor, distances: Sequence[float]) -> Tensor:
    """The example and points around it, near and far, that depend on nothing but the example: `[points, *shape]`."""
    exact = example.detach().to("cpu", torch.float64)
    seed = zlib.crc32(exact.contiguous().numpy().tobytes())
    generator = torch.Generator().manual_seed(seed)
    spread = float(exact.std()) if exact.numel() > 1 else 1.0
    noise = torch.randn((len(distances), *exact.shape), generator=generator, dtype=torch.float64)
    far = torch.tensor(distances, dtype=torch.float64).reshape(-1, *(1,) * exact.dim())
    return (exact + far * (spread or 1.0) * noise).to(example)


def agree(
    graph: Graph, module: nn.Module, example: Tensor, place: Callable[[Tensor, int], Tensor] = lambda x, _: x
) -> None:
    """Check that a graph computes what the module does, at an example and at points around it, which `place` gives the
    form that the graph takes.

    Logit by logit, the difference must be explained by rounding: by the unit roundoff u of the module's evaluation
    times the size of the logit, or by what rounding does to the graph itself, which is never a large part of it.
    """
    x = points(example, DISTANCES)
    seen = Precision()
    with torch.no_grad():
        expected = torch.stack([seen.run(module, point) for point in x]).to(x)
        found = _outputs(graph, place(x, 1))
        if found.shape != expected.shape:
            raise _differ(module, found[0], expected[0])
        finite = (torch.isfinite(found) & torch.isfinite(expected)).flatten(1).all(dim=1)
        if not bool(finite[0]):
            raise _differ(module, found[0], expected[0])
        found, expected, x = found[finite], expected[finite], x[finite]  # the others are so far out that they overflow
        off = (found - expected).abs()
        size = expected.abs().amax(dim=0)
        allowed = ROOM**2 * seen.unit * size
        if bool((off > allowed).any()):
            allowed = torch.minimum(allowed + ROOM * seen.unit / 2**-24 * _rounding(graph, place(x, 1)), MOST * size)
    wrong = (off > allowed).flatten(1).any(dim=1)
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        raise _differ(module, found[k], expected[k])


def _outputs(graph: Graph, x: Tensor) -> Tensor:
    """The graph at points, the first of which is the unperturbed input."""
    return graph.values(x, graph.values(x[:1]))[-1]


def _rounding(graph: Graph, x: Tensor) -> Tensor:
    """How far each logit of the graph in single precision is from that in double, at most; 0 where it overflows."""
    exact = _outputs(graph.to(torch.float64), x.double())
    single = _outputs(graph.to(torch.float32), x.float())
    return torch.nan_to_num((single - exact).abs(), nan=0.0, posinf=0.0).amax(dim=0).to(x.dtype)


class Precision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the coarsest precision that anything which depends on the input goes through."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unit = 0.0
        self.dependent: dict[int, Tensor] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and torch would load its compiler to say so."""
        return False

    def run(self, module: nn.Module, x: Tensor) -> Tensor:
        """The module's output at a point."""
        self.dependent = {id(x): x}  # they are kept alive, so that no other tensor gets the same id
        self.unit = max(self.unit, ulp(x))
        with self:
            out: Tensor = module(x)
        self.dependent = {}
        return out

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(id(a) in self.dependent for a in _tensors((*args, *(kwargs or {}).values()))):
            for tensor in _tensors(result):
                self.dependent[id(tensor)] = tensor
                if tensor.is_floating_point():
                    self.unit = max(self.unit, ulp(tensor))
        return result


def call_agrees(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], found: Any, values: Sequence[Tensor]
) -> None:
    """Check the nodes made of one call against the operator itself, at the examples carried along."""
    for k in range(values[0].shape[0] if operator._schema.returns else 0):
        expected = operator(*_at(args, values, k), **{name: _at(v, values, k) for name, v in kwargs.items()})
        sizes = [_largest(x, MASKS) for x in _tensors((_at(args, values, k), _at(tuple(kwargs.values()), values, k)))]
        pairs = zip(_listed(_at(found, values, k)), _listed(expected), strict=False)
        for mine, theirs in pairs:
            if not isinstance(mine, Tensor) or not isinstance(theirs, Tensor) or not theirs.is_floating_point():
                continue
            unit = max(ulp(mine), ulp(theirs))
            allowed = ROOM * math.sqrt(unit) * _largest(theirs) + ROOM**2 * unit * max(sizes, default=0.0)
            if mine.shape != theirs.shape or _largest(mine - theirs) > allowed:
                raise ModelError(
                    f"the nodes made of {operator} do not compute what it does "
                    f"({_numbers(mine)} instead of {_numbers(theirs)})"
                )


def _at(x: Any, values: Sequence[Tensor], k: int) -> Any:
    """What an operator is called with, at the k-th example, in the precision of the examples."""
    if isinstance(x, Ref):
        value = values[x.index]
        return value[k if value.shape[0] > 1 else 0].contiguous()  # views ask for it
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.to(values[0])
    return type(x)(_at(a, values, k) for a in x) if isinstance(x, (tuple, list)) else x


def _tensors(x: Any) -> list[Tensor]:
    if isinstance(x, (tuple, list)):
        return [t for a in x for t in _tensors(a)]
    return [x] if isinstance(x, Tensor) else []


def _listed(x: Any) -> Sequence[Any]:
    return x if isinstance(x, (tuple, list)) else [x]


def _largest(x: Tensor, below: float = math.inf) -> float:
    """The largest of the entries below a number, all without their signs."""
    x = x.detach().double().abs()
    x = x[x < below]
    return float(x.max()) if x.numel() else 0.0


def _differ(module: nn.Module, found: Tensor, expected: Tensor) -> ModelError:
    return ModelError(
        f"the captured graph of {title(module)} does not reproduce the module "
        f"({_numbers(found)} instead of {_numbers(expected)}): does it depend on more than its input?"
    )


def _numbers(x: Tensor) -> str:
    return str([float(f"{float(v):.6g}") for v in x.flatten()[:4]])
