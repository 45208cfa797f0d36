"""What was captured of one module: graphs by the shape of the input, in the form a relaxation wants, with anchors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from .graph import Graph, agree, by_differences, by_parts, capture, narrowed
from .local import Local, local_nodes
from .names import Method, Relaxation
from .relaxation import anchors
from .speed.memory import Footprints
from .speed.replay import Replays, Store

_EXPORT = threading.Lock()  # torch.export is for one thread at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiled:
    """A graph with the anchors of a method, and what earlier evaluations left behind to make the next ones faster."""

    graph: Graph
    anchors: frozenset[int]
    local: Mapping[int, Local]
    cuda: bool
    footprints: Footprints
    replays: Replays

    @staticmethod
    def of(graph: Graph, anchors: frozenset[int], local: Mapping[int, Local], *, cuda: bool, store: Store) -> Compiled:
        """Before the first evaluation; recordings of evaluations go to the store."""
        return Compiled(
            graph=graph, anchors=anchors, local=local, cuda=cuda, footprints=Footprints(), replays=Replays(store)
        )

    @cached_property
    def single(self) -> Compiled:
        """The same in single precision."""
        local = {i: replace(known, block=known.block.float()) for i, known in self.local.items()}
        return Compiled.of(self.graph.to(torch.float32), self.anchors, local, cuda=self.cuda, store=self.replays.store)


class Captured:
    """The graphs of one module, which must not be changed from here on. Each is captured once; threads may share it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._lock = threading.RLock()
        self._store = Store()
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
                    self._compiled[key] = Compiled.of(graph, frozenset(), {}, cuda=False, store=self._store)
                else:
                    local = local_nodes(graph, example)
                    self._compiled[key] = Compiled.of(
                        graph, anchors(graph, method), local, cuda=example.is_cuda, store=self._store
                    )
            return self._compiled[key]
