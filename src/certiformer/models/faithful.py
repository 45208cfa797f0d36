"""Whether what gets captured is the function that a user calls.

For a text, ids or a picture the logits of the model's own forward pass are compared with those of the module on
embeddings, before anything is said about them. Both are the same code on the same numbers: what differs by more than
rounding is another function, and nothing is proved about it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import CertiformerError, ModelError, title
from .model import Model
from .wrapped import Arguments, FromEmbeddings

STRICT = {torch.float64: 1e-9, torch.float32: 1e-6}  # difference of logits, relative to the largest
SINGLE = 1e-5  # in float64, for models that compute parts of themselves in float32
AROUND = (0.1, 1.0)  # points beside the embeddings that are compared too, in their standard deviations


@dataclass(frozen=True, eq=False)
class Route:
    """Which of a module's routes from embeddings to logits computes what its own forward pass does with `arguments`."""

    number: int
    arguments: dict[str, Tensor]

    @property
    def key(self) -> Hashable:
        """The same for inputs that may share a graph."""
        return self.number, tuple((name, tuple(v.flatten().tolist())) for name, v in self.arguments.items())

    def of(self, module: nn.Module) -> nn.Module:
        """The module that takes this route, with the weights of the one given."""
        assert isinstance(module, FromEmbeddings)
        where = next(module.parameters()).device
        taken = {name: value.to(where) for name, value in self.arguments.items()}
        return list(module.routes(taken))[self.number].eval()


def faithful(model: Model, arguments: Arguments, embeddings: Tensor, *, exact: Callable[[], Model]) -> Route | None:
    """The route from embeddings to logits that does what the model's own forward pass does; None for the module itself.

    A module that is its own forward pass, such as one given with its embeddings, has nothing to be compared with.
    `exact` gives the model in float64, which decides where lower precision leaves a doubt.
    """
    if not isinstance(model.module, FromEmbeddings) or not arguments:
        return None
    taken = model.module.accepted(arguments)
    chosen = _choose(model.module, taken, embeddings)
    if isinstance(chosen, _Differs) and embeddings.dtype == torch.float32:
        module = exact().module
        assert isinstance(module, FromEmbeddings)
        precise = {k: v.double() if v.is_floating_point() else v for k, v in taken.items()}
        chosen = _choose(module, precise, embeddings.double())
    if isinstance(chosen, _Differs):
        raise ModelError(chosen.message)
    return Route(chosen, taken) if chosen else None


def same_by_ids(
    model: Model, rows: Tensor, arguments: Sequence[tuple[str, Any]], embeddings: Tensor, logits: Tensor
) -> bool:
    """Whether the model's own forward pass on ids `[rows, n]`, each with the same other arguments, gives the logits
    `[rows, classes]` that the module gave at their embeddings."""
    module = model.module
    if not isinstance(module, FromEmbeddings):
        return True
    others = {name: torch.tensor([value] * len(rows), device=rows.device) for name, value in arguments}
    taken = module.accepted({"input_ids": rows, **others})
    return _agree(
        module, embeddings, logits, run(partial(module.own, taken), f"{title(module)} could not be run on ids")
    )


class _Differs:
    """No route agrees; the message says what was found."""

    def __init__(self, message: str) -> None:
        self.message = message


def _choose(module: FromEmbeddings, arguments: Arguments, x: Tensor) -> int | _Differs:
    """The number of the first route that agrees, at the embeddings and around them."""
    name, kind = title(module), str(x.dtype).removeprefix("torch.")
    expected = run(partial(module.own, arguments), f"{name} could not be run on {_listed(arguments)} in {kind}")
    routes = list(module.routes(arguments))
    reference = routes[-1] if len(routes) > 1 and _close(routes[-1], x, expected) else None
    failed = "nothing"
    for k, route in enumerate(routes):
        try:
            logits = at(route, x)
        except CertiformerError as error:
            failed = failed if k else f"no logits, {error}"
            continue
        if _agree(route, x, logits, expected) and _agree_around(route, reference, x):
            return k
        failed = failed if k else numbers(logits)
    return _Differs(
        f"{name}: its own forward pass on {_listed(arguments)} gives {numbers(expected)}, the same on embeddings gives "
        f"{failed}: it computes something else from inputs_embeds, and nothing can be proved about it that way; give "
        f"cf.load a module on embeddings"
    )


def _agree_around(route: nn.Module, reference: nn.Module | None, x: Tensor) -> bool:
    if reference is None or route is reference:
        return True
    generator = torch.Generator().manual_seed(0)
    size = float(x.std()) if x.numel() > 1 else 1.0
    for distance in AROUND:
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
        point = x + distance * (size or 1.0) * noise
        with torch.no_grad():
            expected = reference(point)
        if bool(torch.isfinite(expected).all()) and not _close(route, point, expected):
            return False
    return True


def _close(route: nn.Module, x: Tensor, expected: Tensor) -> bool:
    try:
        logits = at(route, x)
    except CertiformerError:
        return False
    return _agree(route, x, logits, expected)


def _agree(route: nn.Module, x: Tensor, logits: Tensor, expected: Tensor) -> bool:
    """Equal but for rounding: relative to the largest logit, and with the same answer."""
    if logits.shape != expected.shape or not bool((logits.argmax(dim=-1) == expected.argmax(dim=-1)).all()):
        return False
    scale, difference = float(expected.abs().max()), float((logits - expected).abs().max())
    if difference <= STRICT[x.dtype] * scale:
        return True
    return x.dtype == torch.float64 and difference <= SINGLE * scale and _single_inside(route, x)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees whether anything is computed in less than float64."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.single = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64:
            self.single = True
        return value


def _single_inside(route: nn.Module, x: Tensor) -> bool:
    watch = _Watch()
    with watch, torch.no_grad():
        route(x)
    return watch.single


def at(module: nn.Module, x: Tensor, kind: type[CertiformerError] = ModelError) -> Tensor:
    """What a module gives at some embeddings; one that changes them in place is refused."""
    given, name = x.clone(), title(module)
    logits = run(partial(module, given), f"{name} could not be run on embeddings of shape {list(x.shape)}", kind)
    if not torch.equal(given, x):
        raise ModelError(f"{name} changes its input in place: let it work on a copy")
    return logits


def run(call: Callable[[], Tensor], asked: str, kind: type[CertiformerError] = ModelError) -> Tensor:
    """What a call gives, without gradients; whatever a model raises inside becomes one line."""
    try:
        with torch.no_grad():
            return call()
    except CertiformerError:
        raise
    except Exception as error:  # what a model may raise has no list
        raise kind(f"{asked}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line, with its type where that is half of it."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return f"{type(error).__name__} {lines[0]}" if isinstance(error, (KeyError, AttributeError)) else lines[0]


def numbers(logits: Tensor) -> str:
    """Logits as they stand in a message."""
    return "logits " + str([float(f"{v:.6g}") for v in logits.flatten()[:6].tolist()])


def _listed(arguments: Arguments) -> str:
    return " and ".join(arguments)
