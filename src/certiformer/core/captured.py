"""What was captured of one module: graphs by the shape of the input, in the form a relaxation wants, with anchors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from .graph import Graph, agree, by_differences, by_parts, capture, narrowed
from .local import Local, local_nodes
from .methods import anchors
from .names import Method, Relaxation
from .speed.replay import Replays

_EXPORT = threading.Lock()  # torch.export is for one thread at a time


@dataclass(frozen=True, eq=False)
class Compiled:
    """A graph with the anchors of a method, and what earlier sweeps needed in memory."""

    graph: Graph
    anchors: frozenset[int]
    local: dict[int, Local] = field(default_factory=dict)
    cuda: bool = False
    footprints: dict[tuple[int, bool], int] = field(default_factory=dict)
    replays: Replays = field(default_factory=Replays)
    peaks: deque[int] = field(default_factory=lambda: deque(maxlen=1))  # entries the last evaluation held at most

    @cached_property
    def single(self) -> Compiled:
        """The same in single precision."""
        local = {i: replace(known, block=known.block.float()) for i, known in self.local.items()}
        return Compiled(self.graph.to(torch.float32), self.anchors, local, self.cuda)


class Captured:
    """The graphs of one module, which must not be changed from here on. Each is captured once; threads may share it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._lock = threading.RLock()
        self._whole: dict[tuple[int, ...], Graph] = {}
        self._graphs: dict[tuple[tuple[int, ...], Relaxation], Graph] = {}
        self._compiled: dict[tuple[tuple[int, ...], Relaxation, Method], Compiled] = {}

    def graph(self, examples: Sequence[Tensor], relaxation: Relaxation) -> Graph:
        """The graph for inputs of one shape [1, n, d], in the form a relaxation wants.

        Whoever asks about inputs gets the graph here: it is compared with the module at and around them, every time.
        """
        example, shape = examples[0], tuple(examples[0].shape)
        with self._lock:
            if shape not in self._whole:
                with _EXPORT:
                    self._whole[shape] = narrowed(capture(self.module, example), example[None])
            if (shape, relaxation) not in self._graphs:
                rewrite = by_parts if relaxation == "paper" else by_differences
                self._graphs[shape, relaxation] = rewrite(self._whole[shape], example[None])
            graph = self._graphs[shape, relaxation]
        for x in examples:
            agree(graph, self.module, x)
        return graph

    def compiled(self, graph: Graph, example: Tensor, *, method: Method, relaxation: Relaxation) -> Compiled:
        """That graph with the anchors of a method."""
        key = (tuple(example.shape), relaxation, method)
        with self._lock:
            if key not in self._compiled:
                if method == "ibp":
                    self._compiled[key] = Compiled(graph, frozenset())
                else:
                    local = local_nodes(graph, example)
                    self._compiled[key] = Compiled(graph, anchors(graph, method), local, example.is_cuda)
            return self._compiled[key]
