"""A model's own copy, and what was captured of it: nothing that happens to the original later can reach it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import torch
from torch import nn

from ..core.captured import Captured
from ..errors import InputError
from ..models.device import pick_device, place
from ..models.faithful import Route, first_line
from ..models.model import Model
from ..options import Device, Precision, precision_name


@dataclass(frozen=True, eq=False)
class Copy:
    """A model in one precision and on one device, in evaluation mode, with the graphs captured of it."""

    model: Model
    captured: Captured


class Workspace:
    """A copy of a model, taken now, and its casts, each made when it is first asked for. Threads may share it."""

    def __init__(self, model: Model) -> None:
        self.model = model.to()
        self._lock = threading.Lock()
        self._copies: dict[tuple[torch.dtype, str], Copy] = {}

    def on(self, *, dtype: Precision, device: Device = None) -> Copy:
        """The model in a precision and on a device; without one, where its weights are."""
        kind, where = precision(dtype), place(self.model) if device is None else pick_device(device)
        with self._lock:
            key = (kind, str(where))
            if key not in self._copies:
                self._copies[key] = self._cast(kind, where)
            return self._copies[key]

    def forget(self) -> None:
        """Answers from here on do not depend, in their last bits, on earlier questions."""
        with self._lock:
            for copy in self._copies.values():
                copy.captured.forget()

    def along(self, route: Route) -> Workspace:
        """The same copy with the module on embeddings that one input needs."""
        return _Along(self, route)

    def _cast(self, dtype: torch.dtype, where: torch.device) -> Copy:
        try:
            model = self.model.to(device=where, dtype=dtype)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device={str(where)!r}: {first_line(error)}") from None
        for half in (model.module, model.embed):
            if isinstance(half, nn.Module):
                half.eval().requires_grad_(False)
        return Copy(model, Captured(model.module))


class _Along(Workspace):
    """The same copies, each with the module that takes another route from embeddings to logits."""

    def __init__(self, workspace: Workspace, route: Route) -> None:
        self.model = workspace.model
        self._lock = threading.Lock()
        self._copies: dict[tuple[torch.dtype, str], Copy] = {}
        self._workspace, self._route = workspace, route

    def _cast(self, dtype: torch.dtype, where: torch.device) -> Copy:
        model = self._workspace.on(dtype=dtype, device=where).model
        model = replace(model, module=self._route.of(model.module))
        return Copy(model, Captured(model.module))


def precision(dtype: Precision) -> torch.dtype:
    """The type of numbers of a name."""
    kind: torch.dtype = getattr(torch, precision_name("dtype", dtype))
    return kind
