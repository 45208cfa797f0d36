"""Reads files without trusting them: bounded memory, nothing executed. What is not as it should be raises Wrong."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from certiformer_checker.graph import ELEMENTWISE, Graph, Node
from certiformer_checker.numbers import MOST, Array, Wrong, require

MAGIC, VERSION = b"CERTIFORMER CERTIFICATE ", b"1\n"
PAYLOAD, HEADER, ENTRIES, NODES = 2**29, 2**24, 2**27, 10_000
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "|u1"}
Tensors = dict[str, tuple[str, Array]]


def parsed(data: bytes, what: str) -> Any:
    """JSON without repeated names and without NaN."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len({name for name, _ in pairs}) == len(pairs), f"{what}: a name stands twice")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Wrong(f"{what} is not JSON") from None


def whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def wholes(value: Any, high: int) -> bool:
    return isinstance(value, list) and all(whole(x, 0, high) for x in value)


def fields(value: Any, what: str, needed: str, maybe: str = "") -> dict[str, Any]:
    """An object with these names and no others."""
    good = isinstance(value, dict) and set(needed.split()) <= set(value) <= set(f"{needed} {maybe}".split())
    require(good, f"{what}: expected {needed}, and nothing else but {maybe or 'these'}")
    return dict(value)


def safetensors(data: memoryview, what: str) -> tuple[Any, Tensors]:
    """The metadata and the tensors of a safetensors file."""
    end = 8 + int.from_bytes(data[:8], "little")
    require(8 <= end <= min(len(data), 8 + HEADER), f"{what} is truncated, or its header is too long")
    header = parsed(bytes(data[8:end]), f"the header of {what}")
    require(isinstance(header, dict), f"the header of {what} is no object")
    metadata, tensors, place = header.pop("__metadata__", {}), {}, 0
    entries = {name: fields(header[name], f"tensor {name[:80]!r}", "dtype shape data_offsets") for name in header}
    good = (wholes(e["data_offsets"], len(data)) and len(e["data_offsets"]) == 2 for e in entries.values())
    require(all(good), f"{what}: offsets that are none")
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        (start, stop), shape, kind = entry["data_offsets"], entry["shape"], str(entry["dtype"])
        require(
            kind in TYPES and wholes(shape, ENTRIES) and len(shape) <= 8,
            f"{what}: tensor {name[:80]!r} is of no kind read",
        )
        count, dtype = math.prod(shape), np.dtype(TYPES[kind])
        good = (
            count <= ENTRIES and start == place and stop - start == count * dtype.itemsize and end + stop <= len(data)
        )
        require(good, f"{what}: tensor {name[:80]!r} is not where it says, or {what} is truncated")
        tensors[name] = kind, np.frombuffer(data[end + start : end + stop], dtype).reshape(shape)
        place = stop
    require(end + place == len(data), f"{what}: there is more than its tensors")
    return metadata, tensors


def payload(path: Path) -> memoryview:
    """What is compressed in a certificate. No more is decompressed than the file says, and that has a limit."""
    with path.open("rb") as file:
        head = file.read(66)
        require(head.startswith(MAGIC), "not a certificate")
        require(head[24:26] == VERSION, "a certificate of another version than 1")
        require(len(head) == 66, "the certificate is truncated")
        size = int.from_bytes(head[26:34], "little")
        require(size <= PAYLOAD, "the certificate is larger than the limit of 2^29 bytes")
        packed = file.read(size + size // 1000 + 4096)
        require(not file.read(1), "there is more behind the certificate")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed, max(size, 1))
        rest = stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error:
        raise Wrong("the certificate is damaged: it cannot be decompressed") from None
    good = stream.eof and not rest and not stream.unused_data and len(data) == size
    require(good, "the certificate is truncated, or holds another number of bytes than it says")
    require(hashlib.sha256(data).digest() == head[34:66], "the certificate is damaged: its SHA-256 is another")
    return memoryview(data)


class Numbers:
    """The tensors of a certificate; each is taken once, by name, kind and shape."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = dict(tensors)

    def take(
        self, name: str, shape: tuple[int | None, ...] | None, kinds: str = "F64 F32", infinite: bool = False
    ) -> Array:
        require(name in self.tensors, f"tensor {name} is missing")
        kind, value = self.tensors.pop(name)
        wanted = (
            value.shape
            if shape is None
            else tuple(b if a is None else a for a, b in zip(shape, value.shape, strict=False))
        )
        good = kind in kinds.split() and wanted == value.shape and len(shape or wanted) == value.ndim
        require(good, f"tensor {name} is {kind} {list(value.shape)}, expected {kinds} {shape}")
        if kind in ("BOOL", "I64"):
            require((kind == "I64") | (value <= 1), f"tensor {name} is not true or false")
            return value.astype(bool) if kind == "BOOL" else value
        value = value.astype(np.float64)
        require(
            ~np.isnan(value) if infinite else np.abs(value) <= MOST,
            f"tensor {name} has NaN or a number that is too large",
        )
        return value


# op: how many inputs (None: one or more), attributes, constants
OPS: dict[str, tuple[int | None, str, str]] = {
    **dict.fromkeys(("center", "reshape", "expand", "softmax_of_differences", *ELEMENTWISE), (1, "", "")),
    "input": (0, "", ""),
    "constant": (0, "", "value"),
    "multiply": (2, "", ""),
    "matmul": (2, "", ""),
    "linear": (1, "", "weight"),
    "shift": (1, "", "value"),
    "scale": (1, "", "value"),
    "add": (2, "sign", ""),
    "sum": (1, "axes mean", ""),
    "permute": (1, "order", ""),
    "slice": (1, "axis start length", ""),
    "concat": (None, "axis", ""),
    "normalize": (1, "eps", ""),
}


def attribute(name: str, value: Any) -> bool:
    if name == "sign":
        return type(value) is int and value in (1, -1)
    if name == "mean":
        return isinstance(value, bool)
    if name == "eps":
        return type(value) in (int, float) and 0 <= value <= MOST
    return wholes(value, 7) if name in ("axes", "order") else whole(value, 0, ENTRIES)


def read_graph(entries: Any, numbers: Numbers) -> Graph:
    """The nodes. That operations fit the shapes of their inputs is seen when they are evaluated (`references`)."""
    require(isinstance(entries, list) and 2 <= len(entries) <= NODES, "a graph has from 2 to 10,000 nodes")
    graph: list[Node] = []
    for i, entry in enumerate(entries):
        op = str(entry.get("op")) if isinstance(entry, dict) else ""
        require(op in OPS, f"node {i}: no operation of that name")
        arity, attributes, constants = OPS[op]
        fields(entry, f"node {i} ({op})", f"op inputs shape {attributes}", "path")
        inputs, shape, rules = entry["inputs"], entry["shape"], {name: entry[name] for name in attributes.split()}
        good = wholes(inputs, i - 1) and len(inputs) == (max(len(inputs), 1) if arity is None else arity)
        good = good and wholes(shape, ENTRIES) and 1 <= len(shape) <= 8 and 1 <= math.prod(shape) <= ENTRIES
        good = good and (op == "input") == (i == 0) and all(attribute(*rule) for rule in rules.items())
        require(good, f"node {i} ({op}): inputs, shape or attributes are not as they should be")
        form = {"weight": (shape[-1], None), "value": shape if op == "constant" else None}
        held = {name: numbers.take(f"graph.{i}.{name}", form[name]) for name in constants.split()}
        if op == "linear" and f"graph.{i}.bias" in numbers.tensors:
            held["bias"] = numbers.take(f"graph.{i}.bias", (shape[-1],))
        graph.append(Node(op, tuple(inputs), tuple(shape), rules, held, i == 0 or any(graph[j].varies for j in inputs)))
    require(graph[-1].varies, "the output does not depend on the input")
    return tuple(graph)
