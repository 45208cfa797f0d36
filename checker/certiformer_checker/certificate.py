"""A certificate as it is read: the graph, the set, and of each case what it claims and chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from certiformer_checker.graph import ELEMENTWISE, NONLINEAR, Graph
from certiformer_checker.numbers import Array, Span, require
from certiformer_checker.planes import BENDS
from certiformer_checker.reader import Numbers, fields, parsed, payload, read_graph, safetensors, whole, wholes
from certiformer_checker.sets import Region

COMBINATIONS, CASES, SIDES = 20_000, 4_096, ("lower", "upper")


@dataclass(frozen=True)
class Claims:
    """What a case claims and chooses, by node."""

    anchors: dict[int, str]
    ways: dict[int, list[str]]
    sweeps: dict[int, list[bool]]
    boxes: dict[int, Span]
    cuts: dict[tuple[int, int], list[Array]]
    reaches: dict[int, list[Array]]
    witness: dict[int, dict[str, Array]]


@dataclass(frozen=True)
class Certificate:
    """All of the file. A region for each case; of `points`, one region and no claims."""

    words: dict[str, Any]
    graph: Graph
    x0: Array
    regions: list[Region]
    claims: list[Claims]
    label: int
    margin: Array
    vertex_ids: list[Array]


def read(path: Path) -> Certificate:
    metadata, tensors = safetensors(payload(path), "the certificate")
    text = fields(metadata, "the metadata", "certificate")["certificate"]
    parts = "format version writer model input graph set claim cases"
    words = fields(parsed(str(text).encode(), "the certificate"), "the certificate", parts)
    good = words["format"] == "certiformer certificate" and whole(words["version"], 1, 1)
    require(good, "a certificate of another format or version")
    model = fields(words["model"], "model", "kind name weights labels")
    ids = fields(words["input"], "input", "text tokens ids")["ids"]
    require(model["kind"] in ("folder", "graph"), "model.kind is neither folder nor graph")
    numbers = Numbers(tensors)
    graph = read_graph(words["graph"], numbers)
    shape, classes = graph[0].shape, graph[-1].shape[-1]
    good = len(shape) == 3 and shape[0] == 1 and graph[-1].shape == (1, classes) and classes >= 2
    require(good, "input or output of the graph are not [1, n, d] and [1, classes]")
    x0 = numbers.take("input.embeddings", shape[1:], "F64")
    good = (wholes(ids, 2**31) and len(ids) == len(x0)) or (ids is None and model["kind"] == "graph")
    require(good, "input.ids: expected one for each position")
    label = fields(words["claim"], "claim", "label")["label"]
    margin = numbers.take("claim.margin", (classes - 1,), "F64")
    require(
        whole(label, 0, classes - 1) and (margin > 0).all(),
        "the claim is of no class, or of a margin that is not above 0",
    )
    regions, vertex_ids = read_set(words["set"], x0, numbers, model["kind"] == "folder")
    count = 0 if words["set"]["kind"] == "points" else len(regions)
    require(isinstance(words["cases"], list) and len(words["cases"]) == count, f"expected {count} cases")
    claims = [read_case(case, str(n), graph, regions[n], numbers) for n, case in enumerate(words["cases"])]
    require(not numbers.tensors, f"tensor {next(iter(numbers.tensors), '')[:80]!r} is not part of a certificate")
    return Certificate(words, graph, x0, regions, claims, label, margin, vertex_ids)


def read_set(words: Any, x0: Array, numbers: Numbers, folder: bool) -> tuple[list[Region], list[Array]]:
    ball = isinstance(words, dict) and words.get("kind") == "ball"
    fields(words, "set", "kind positions p" if ball else "kind positions", "pieces" if ball else "")
    positions, p = words["positions"], math.inf if words.get("p") == "inf" else words.get("p", 2)
    good = wholes(positions, len(x0) - 1) and positions and sorted(set(positions)) == positions
    require(good and words["kind"] in ("ball", "hull", "points"), "set: no kind, or positions that do not increase")
    t, d = len(positions), x0.shape[1]
    if ball:
        radius, pieces = numbers.take("set.radius", (t,), "F64"), words.get("pieces", False)
        good = type(p) in (int, float) and p >= 1 and isinstance(pieces, bool) and (radius >= 0).all()
        require(good, "set: p, pieces or radius are not as they should be")
        if not pieces:
            return [Region(x0, positions, float(p), radius)], []
        normals = numbers.take("set.normals", (None, t, d), "F64")
        low, high = (numbers.take(f"set.{end}", (None, len(normals)), "F64", infinite=True) for end in ("low", "high"))
        require(
            low.shape == high.shape and 1 <= len(low) <= CASES and covers(low, high), "the pieces do not cover the ball"
        )
        return [Region(x0, positions, float(p), radius, normals, *ends) for ends in zip(low, high, strict=True)], []
    vertices, counts = numbers.take("set.vertices", (t, None, d), "F64"), numbers.take("set.counts", (t,), "I64")
    require((counts >= 1) & (counts <= vertices.shape[1]), "set.counts are of no number of vertices")
    few = words["kind"] == "hull" or math.prod(map(int, counts)) <= COMBINATIONS
    require(few, "more than 20,000 combinations of points")
    ids = numbers.take("set.ids", vertices.shape[:2], "I64") if folder else np.zeros(vertices.shape[:2], int)
    parts = tuple(vertices[j, : counts[j]] for j in range(t))
    return [Region(x0, positions, vertices=parts)], [ids[j, : counts[j]] for j in range(t)]


def covers(low: Array, high: Array) -> bool:
    """Whether the pieces, drawn on the grid of all their ends, leave no cell free."""
    axes = [np.unique(ends[np.isfinite(ends)]) for ends in np.concatenate([low, high]).T]
    require(math.prod(len(axis) + 1 for axis in axes) <= 2**24, "the pieces are too many")
    grid = np.zeros([len(axis) + 1 for axis in axes], dtype=bool)  # cell c of an axis lies between its ends c - 1 and c
    for a, b in zip(low, high, strict=True):
        first = [np.searchsorted(axis, x, side="right") for axis, x in zip(axes, a, strict=True)]
        last = [np.searchsorted(axis, x, side="left") for axis, x in zip(axes, b, strict=True)]
        if (a < b).all():
            grid[tuple(slice(i, j + 1) for i, j in zip(first, last, strict=True))] = True
    return bool(grid.all())


def by_node(value: Any, what: str, graph: Graph) -> dict[int, Any]:
    good = isinstance(value, dict) and set(value) <= {str(i) for i in range(len(graph))}
    require(good, f"{what}: no node of that number")
    return {int(i): value[i] for i in value}


def subset(value: Any, of: tuple[Any, ...]) -> bool:
    """A list of some of these, none twice."""
    good = isinstance(value, list) and 1 <= len(value) <= len(of)
    return good and all(type(x) is type(of[0]) and x in of and value.count(x) == 1 for x in value)


def read_case(words: Any, name: str, graph: Graph, region: Region, numbers: Numbers) -> Claims:
    fields(words, f"case {name}", "anchors boxes sweeps reaches")
    anchors, ways, sweeps = (by_node(words[part], f"case {name}", graph) for part in ("anchors", "boxes", "sweeps"))
    last, reaches = len(graph) - 1, words["reaches"]
    good = all(way == "form" for way in anchors.values())
    good = good and all(subset(way, ("interval", "sweep")) for way in ways.values())
    good = good and all(subset(way, (True, False)) for way in sweeps.values())
    good = good and wholes(reaches, last) and all("sweep" in ways.get(i, ()) for i in reaches)
    require(good and len(set(reaches)) == len(reaches), f"case {name}: a claim of no kind that there is")
    needed = {i for i in ways if "sweep" in ways[i]} | set(anchors) | {last}
    require(needed == set(sweeps), f"case {name}: sweeps are missing, or there are too many")
    good = all(graph[i].varies for i in {*ways, *anchors})
    require(good and not {0, last} & {*ways, *anchors}, f"case {name}: a claim about a node that can have none")

    def pair(kind: str, shape: Any, ends: tuple[str, str] = SIDES, types: str = "F64") -> list[Array]:
        return [numbers.take(f"{name}.{kind}.{end}", shape, types) for end in ends]

    boxes = {i: Span(*pair(f"box.{i}", graph[i].shape)) for i in ways}
    require(all((box.lo <= box.hi).all() for box in boxes.values()), f"case {name}: a box is empty")
    cuts = {}
    for i, kinds in sweeps.items() if region.normals is not None else []:
        rows, k = (graph[last].shape[-1] - 1,) if i == last else graph[i].shape, len(np.asarray(region.normals))
        for s in range(len(kinds)):
            cuts[i, s] = [t.reshape(k, -1) for t in pair(f"cut.{i}.{s}", (k, *rows), types="F64 F32")]
    reach = {i: pair(f"reach.{i}", graph[i].shape[:-1], ("distance", "radial")) for i in reaches}
    chosen = {
        i: choices(i, graph, name, numbers) for i, node in enumerate(graph) if node.op in NONLINEAR and node.varies
    }
    return Claims(anchors, ways, sweeps, boxes, cuts, reach, chosen)


def choices(i: int, graph: Graph, name: str, numbers: Numbers) -> dict[str, Array]:
    """What decides the planes of a nonlinear node, beside the boxes of its inputs."""
    node = graph[i]
    if node.op in ELEMENTWISE:
        held = {side: numbers.take(f"{name}.slope.{i}.{side}", node.shape) for side in SIDES}
        if node.op != "relu":
            held["touch"] = numbers.take(f"{name}.touch.{i}", (len(BENDS[node.op][0]) + 1, *node.shape))
        return held
    if node.op == "softmax_of_differences":
        return {side: numbers.take(f"{name}.point.{i}.{side}", graph[node.inputs[0]].shape) for side in SIDES}
    if node.op == "normalize":
        return {"tangent": numbers.take(f"{name}.tangent.{i}", node.shape, "BOOL")}
    if not any(f"{name}.share.{i}.{side}" in numbers.tensors for side in SIDES):
        return {}
    full = (*graph[node.inputs[0]].shape, node.shape[-1]) if node.op == "matmul" else node.shape
    held = {side: numbers.take(f"{name}.share.{i}.{side}", None) for side in SIDES}
    for share in held.values():
        require(np.broadcast_shapes(share.shape, full) == full, f"case {name}: shares of node {i} of another shape")
        require((share >= 0) & (share <= 1), f"case {name}: shares of node {i} outside of [0, 1]")
    return held
