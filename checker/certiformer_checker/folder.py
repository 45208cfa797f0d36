"""The graph that a model folder stands for, built from its own files, and whether a certificate is about it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from certiformer_checker.case import references
from certiformer_checker.certificate import Certificate
from certiformer_checker.numbers import Array, Span, require
from certiformer_checker.reader import Tensors, parsed, safetensors, whole

LARGEST = 2**32  # bytes of weights
Built = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, Array]]
NORMS = ("no_var", "standard", "none")


def as_float32(kind: str, value: Array, name: str) -> Array:
    require(kind in ("F64", "F32", "F16", "BF16"), f"model.safetensors: {name} holds no floating-point numbers")
    if kind == "BF16":
        return (value.astype(np.uint32) << 16).view(np.float32)
    return value.astype(np.float32)


class Folder:
    """config.json and the weights of model.safetensors as float32."""

    def __init__(self, path: Path) -> None:
        for name in ("config.json", "model.safetensors"):
            require((path / name).is_file(), f"{path}: no {name} there")
        require((path / "config.json").stat().st_size < 2**24, "config.json is too large")
        require((path / "model.safetensors").stat().st_size < LARGEST, "model.safetensors is too large")
        config = parsed((path / "config.json").read_bytes(), "config.json")
        require(isinstance(config, dict), "config.json is no object")
        tensors: Tensors = safetensors(memoryview((path / "model.safetensors").read_bytes()), "model.safetensors")[1]
        self.width, self.layers, self.heads = (
            config.get(name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")
        )
        good = all(whole(value, 1, 2**20) for value in (self.width, self.layers, self.heads))
        require(good and self.width % self.heads == 0, "config.json: sizes that do not go together")
        self.act, self.norm = config.get("hidden_act"), config.get("layer_norm", "standard")
        require(
            self.act in ("relu", "gelu") and self.norm in NORMS, "config.json: an activation or a norm of another kind"
        )
        self.eps: float = config.get("layer_norm_eps", 1e-12)
        require(isinstance(self.eps, (int, float)) and 0 <= self.eps < 1, "config.json: layer_norm_eps")
        left_out = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}
        names = sorted(n for n in tensors if n not in left_out and not (self.norm == "none" and "LayerNorm." in n))
        self.weights = {name: as_float32(*tensors[name], name) for name in names}

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for name, value in self.weights.items():
            digest.update(name.encode() + b"\0" + ",".join(map(str, value.shape)).encode() + b"\0")
            digest.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
        return digest.hexdigest()

    def get(self, name: str, *shape: int | None) -> Array:
        require(name in self.weights, f"model.safetensors: {name} is missing")
        value = self.weights[name]
        fits = len(shape) == value.ndim and all(a in (None, b) for a, b in zip(shape, value.shape, strict=True))
        require(fits, f"model.safetensors: {name} has the shape {list(value.shape)}")
        return value.astype(np.float64)

    def embedded(self, ids: list[int], positions: list[int]) -> Array:
        tables = [
            self.get(f"bert.embeddings.{t}_embeddings.weight", None, self.width)
            for t in ("word", "position", "token_type")
        ]
        require(
            max(ids) < len(tables[0]) and max(positions) < len(tables[1]), "more tokens or positions than the model has"
        )
        return np.asarray((tables[0][ids] + tables[1][positions]) + tables[2][0])

    def graph(self, n: int, classes: int) -> list[Built]:
        """Nodes as the specification lists them: op, inputs, shape, attributes, constants."""
        d, h = self.width, self.heads
        s = d // h
        nodes: list[Built] = [("input", (), (1, n, d), {}, {})]

        def add(op: str, inputs: tuple[int, ...], shape: tuple[int, ...], rules: Any = None, **constants: Array) -> int:
            nodes.append((op, inputs, shape, rules or {}, constants))
            return len(nodes) - 1

        def linear(x: int, name: str, out: int | None = None) -> int:
            shape = nodes[x][2]
            weight = self.get(f"{name}.weight", out, shape[-1])
            return add(
                "linear", (x,), (*shape[:-1], len(weight)), weight=weight, bias=self.get(f"{name}.bias", len(weight))
            )

        def norm(x: int, name: str) -> int:
            shape = nodes[x][2]
            if self.norm == "none":
                return x
            x = add("center", (x,), shape)
            x = add("normalize", (x,), shape, {"eps": self.eps}) if self.norm == "standard" else x
            x = add("scale", (x,), shape, value=self.get(f"{name}.weight", d))
            return add("shift", (x,), shape, value=self.get(f"{name}.bias", d))

        def heads(x: int, name: str, m: int) -> int:
            return add("reshape", (linear(x, name, d),), (1, m, h, s))

        def apart(x: int) -> int:
            return add("permute", (x,), (1, h, nodes[x][2][1], s), {"order": [0, 2, 1, 3]})

        def first(x: int, last: bool) -> int:
            return add("slice", (x,), (1, 1, d), {"axis": 1, "start": 0, "length": 1}) if last else x

        x = norm(0, "bert.embeddings.LayerNorm")
        for layer in range(self.layers):
            name, last = f"bert.encoder.layer.{layer}.", layer == self.layers - 1
            m = 1 if last else n
            q = apart(heads(first(x, last), f"{name}attention.self.query", m))
            k = heads(x, f"{name}attention.self.key", n)
            v = apart(heads(x, f"{name}attention.self.value", n))
            k = add("permute", (k,), (1, h, s, n), {"order": [0, 2, 3, 1]})
            score = add("scale", (add("matmul", (q, k), (1, h, m, n)),), (1, h, m, n), value=np.array(1 / math.sqrt(s)))
            across = add("reshape", (score,), (1, h, m, 1, n))
            along = add("reshape", (score,), (1, h, m, n, 1))
            p = add(
                "softmax_of_differences", (add("add", (across, along), (1, h, m, n, n), {"sign": -1}),), (1, h, m, n)
            )
            mixed = add("permute", (add("matmul", (p, v), (1, h, m, s)),), (1, m, h, s), {"order": [0, 2, 1, 3]})
            out = linear(add("reshape", (mixed,), (1, m, d)), f"{name}attention.output.dense", d)
            y = norm(add("add", (first(x, last), out), (1, m, d), {"sign": 1}), f"{name}attention.output.LayerNorm")
            inner = linear(y, f"{name}intermediate.dense")
            out = linear(add(self.act, (inner,), nodes[inner][2]), f"{name}output.dense", d)
            x = norm(add("add", (y, out), (1, m, d), {"sign": 1}), f"{name}output.LayerNorm")
        x = linear(add("reshape", (x,), (1, d)), "bert.pooler.dense", d)
        linear(add("tanh", (x,), (1, d)), "classifier", classes)
        return nodes

    def logits(self, x: Array) -> Array:
        """The model itself, run on embeddings `[n, d]` without any graph."""
        h = self.heads

        def linear(x: Array, name: str) -> Array:
            return x @ self.get(f"{name}.weight", None, None).T + self.get(f"{name}.bias", None)

        def norm(x: Array, name: str) -> Array:
            if self.norm == "none":
                return x
            x = x - x.mean(axis=-1, keepdims=True)
            x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) if self.norm == "standard" else x
            return x * self.get(f"{name}.weight", None) + self.get(f"{name}.bias", None)

        x = norm(x, "bert.embeddings.LayerNorm")
        for layer in (f"bert.encoder.layer.{i}." for i in range(self.layers)):
            parts = (linear(x, f"{layer}attention.self.{part}") for part in ("query", "key", "value"))
            q, k, v = (part.reshape(len(x), h, -1).swapaxes(0, 1) for part in parts)  # [heads, n, size]
            scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (weights / weights.sum(axis=-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
            y = norm(x + linear(mixed, f"{layer}attention.output.dense"), f"{layer}attention.output.LayerNorm")
            inner = linear(y, f"{layer}intermediate.dense")
            inner = np.maximum(inner, 0) if self.act == "relu" else inner * Span(inner).normal().lo
            x = norm(y + linear(inner, f"{layer}output.dense"), f"{layer}output.LayerNorm")
        return linear(np.tanh(linear(x[0], "bert.pooler.dense")), "classifier")


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def compare(certificate: Certificate, path: Path) -> None:
    """Raises Wrong where the certificate is about another model, or about other embeddings, than the folder."""
    folder, graph, ids = Folder(path), certificate.graph, certificate.words["input"]["ids"]
    require(certificate.words["model"]["weights"] == folder.sha256(), "the SHA-256 of the folder's weights is another")
    built = folder.graph(graph[0].shape[1], graph[-1].shape[-1])
    for i, (node, wanted) in enumerate(zip(graph, built, strict=False)):
        found = node.op, node.inputs, node.shape, node.rules
        require(found == wanted[:4], f"node {i} of the graph is not that of the folder")
        constants = set(node.constants) == set(wanted[4]) and all(
            same(node.constants[n], wanted[4][n]) for n in wanted[4]
        )
        require(constants, f"node {i} ({node.op}) has other numbers than the folder")
    require(len(graph) == len(built), "the graph has another number of nodes than the folder's")
    region, rng = certificate.regions[0], np.random.default_rng(0)
    for x in (certificate.x0, *(certificate.x0 + rng.normal(size=certificate.x0.shape) for _ in range(2))):
        one, other = references(graph, x)[-1][0], folder.logits(x)
        close = np.abs(one - other) <= 1e-6 * (1 + np.abs(other))
        require(close, "the graph and the folder's own weights give different logits")
    own = same(certificate.x0, folder.embedded(ids, list(range(len(ids)))))
    require(own, "the embeddings are not those of the folder for these tokens")
    for chosen, vertices, position in zip(certificate.vertex_ids, region.vertices, region.positions, strict=False):
        require((chosen >= 0).all(), "a substitute is no token")
        own = same(vertices, folder.embedded([int(i) for i in chosen], [position] * len(chosen)))
        require(own, f"the substitutes of position {position} are not those of the folder")
