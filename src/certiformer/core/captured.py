"""What was captured of one module: graphs by the shape of the input, in the form a relaxation wants, with anchors."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from ..errors import title
from .graph import (
    Arrangement,
    Graph,
    agree,
    arranged,
    by_differences,
    by_parts,
    capture,
    in_float32,
    narrowed,
    on_sphere,
    unstacked,
)
from .local import Local, local_nodes
from .names import Arithmetic, BoundOptions, Method, Relaxation
from .relaxation import anchors
from .speed.batches import Batches
from .speed.memory import Room
from .speed.replay import Replays, Store

log = logging.getLogger(__name__)
_EXPORT = threading.Lock()  # torch.export is for one thread at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiled:
    """A graph with the anchors of a method, and what earlier evaluations left behind to make the next ones faster."""

    graph: Graph
    anchors: frozenset[int]
    local: Mapping[int, Local]
    cuda: bool
    room: Room
    replays: Replays
    batches: dict[Hashable, Batches]  # of pieces, by how they are bounded
    counted: dict[Hashable, float]  # seconds that a search should take, by what is asked and how it is bounded
    other: Compiled | None  # of the graph that this one stands for over balls, if it is another

    @staticmethod
    def of(
        graph: Graph,
        anchors: frozenset[int],
        local: Mapping[int, Local],
        *,
        cuda: bool,
        store: Store,
        other: Compiled | None = None,
    ) -> Compiled:
        """Before the first evaluation; recordings of evaluations go to the store."""
        return Compiled(
            graph=graph,
            anchors=anchors,
            local=local,
            cuda=cuda,
            room=Room(),
            replays=Replays(store),
            batches={},
            counted={},
            other=other,
        )

    @property
    def plain(self) -> Compiled:
        """Of the graph as it was compared with the module, for sets of any kind."""
        return self if self.other is None else self.other

    @cached_property
    def single(self) -> Compiled:
        """The same in single precision."""
        local = {i: replace(known, block=known.block.float()) for i, known in self.local.items()}
        return Compiled.of(self.graph.to(torch.float32), self.anchors, local, cuda=self.cuda, store=self.replays.store)

    def forget(self) -> None:
        """As before the first evaluation: memory that ran out may be there again."""
        self.room.bytes = math.inf
        if "single" in self.__dict__:
            self.single.forget()


class Captured:
    """The graphs of one module, which must not be changed from here on. Each is captured once; threads may share it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._lock = threading.RLock()
        self._store = Store()
        self._whole: dict[tuple[int, ...], Graph] = {}
        self._places: dict[tuple[int, ...], Arrangement] = {}
        self._graphs: dict[tuple[tuple[int, ...], Relaxation, Arithmetic], Graph] = {}
        self._spheres: dict[tuple[tuple[int, ...], Relaxation, Arithmetic], Graph] = {}
        self._compiled: dict[tuple[tuple[int, ...], Relaxation, Arithmetic, Method, bool], Compiled] = {}

    def graph(self, examples: Sequence[Tensor], relaxation: Relaxation, arithmetic: Arithmetic) -> Graph:
        """The graph for inputs of one shape, in the form a relaxation wants, of real or rounded values.

        Whoever asks about inputs gets the graph here: it is compared with the module at and around them, every time.
        """
        example, shape = examples[0], tuple(examples[0].shape)
        with self._lock:
            if shape not in self._whole:
                started = time.perf_counter()
                with _EXPORT:
                    found = self._capture(example)
                what = (title(self.module), [*shape], len(found.nodes), time.perf_counter() - started)
                log.info("captured %s for inputs %s: %d nodes, %.2f s", *what)
                whole, self._places[shape] = arranged(found, example)
                first = self.placed(example)[None]
                whole = unstacked(narrowed(whole, first), first)
                self._whole[shape] = replace(whole, folded=found.folded)
            key = (shape, relaxation, arithmetic)
            if key not in self._graphs:
                rewrite = by_parts if relaxation == "paper" else by_differences
                whole, first = self._whole[shape], self.placed(example)[None]
                whole = whole if arithmetic == "real" else in_float32(whole, first)
                self._graphs[key] = rewrite(whole, first)
            graph = self._graphs[key]
        for x in examples:
            self._compare(graph, x)
        return graph

    def _capture(self, example: Tensor) -> Graph:
        return capture(self.module, example)

    def _compare(self, graph: Graph, x: Tensor) -> None:
        agree(graph, self.module, x, self._places[tuple(x.shape)])

    def placed(self, x: Tensor) -> Tensor:
        """An input `[1, *shape]` of a shape that was captured, as its graph takes it: `[1, n, d]`."""
        return self._places[tuple(x.shape)](x)

    def forget(self) -> None:
        """Where memory ran out in earlier evaluations is forgotten: the next one gives the bits of a first one."""
        with self._lock:
            for compiled in self._compiled.values():
                compiled.forget()

    def compiled(
        self, graph: Graph, example: Tensor, *, method: Method, options: BoundOptions, lengths: bool
    ) -> Compiled:
        """That graph with the anchors of a method; over sets of `lengths` the graph that stands for it there."""
        key = (tuple(example.shape), options.relaxation, options.arithmetic, method, lengths)
        with self._lock:
            if key not in self._compiled:
                other = None
                if lengths:
                    other = self.compiled(graph, example, method=method, options=options, lengths=False)
                    if key[:3] not in self._spheres:  # of all methods: boxes that one has proved are known to others
                        self._spheres[key[:3]] = on_sphere(graph, self.placed(example)[None])
                    graph = self._spheres[key[:3]]
                if other is not None and graph is other.graph:
                    self._compiled[key] = other
                elif method == "ibp":
                    self._compiled[key] = Compiled.of(graph, frozenset(), {}, cuda=False, store=self._store)
                else:
                    local, ends, cuda = local_nodes(graph, example), anchors(graph, method), example.is_cuda
                    self._compiled[key] = Compiled.of(graph, ends, local, cuda=cuda, store=self._store, other=other)
            return self._compiled[key]
