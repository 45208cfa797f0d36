"""Mutants of certificates, and an attack on what they claim: by an evaluator that shares no code with the checker."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any

import numpy as np

Numbers = dict[str, np.ndarray]
OPS = [
    "linear",
    "add",
    "shift",
    "scale",
    "sum",
    "center",
    "permute",
    "reshape",
    "slice",
    "concat",
    "expand",
    "relu",
    "tanh",
    "sigmoid",
    "gelu",
    "multiply",
    "matmul",
]
NODE = ("op", "input", "shape", "attribute", "drop", "exchange")
REST = ("label", "p", "position", "case", "way", "anchor", "reach", "kind", "field", "ids")


def mutant(words: Any, numbers: Numbers, rng: random.Random) -> tuple[str, Any, Numbers]:
    """One change somewhere: its name, and the words and numbers that result."""
    words, numbers = copy.deepcopy(words), dict(numbers)
    if rng.random() < 0.7:
        return _number(words, numbers, rng)
    if rng.random() < 0.5:
        return _node(words, numbers, rng)
    return _word(words, numbers, rng)


def _number(words: Any, numbers: Numbers, rng: random.Random) -> tuple[str, Any, Numbers]:
    name = rng.choice(sorted(numbers))
    if rng.random() < 0.15:
        name = rng.choice([n for n in numbers if n.startswith(("claim", "set", "input"))])
    value = numbers[name].copy()
    flat = value.reshape(-1)
    i, j = rng.randrange(flat.size), rng.randrange(flat.size)
    how = rng.choice(
        [
            "flip",
            "scale",
            "swap",
            "nudge",
            "set",
            "delete",
            "rename",
            "reshape",
            "exchange",
            "wide",
            "tight",
            "cast",
            "all",
        ]
    )
    if how == "delete":
        del numbers[name]
    elif how == "rename":
        numbers[name + "x"] = numbers.pop(name)
    elif how == "exchange":
        other = rng.choice([n for n in numbers if numbers[n].shape == value.shape])
        numbers[name], numbers[other] = numbers[other], numbers[name]
    elif how == "reshape":
        numbers[name] = value.reshape(*value.shape, 1) if rng.random() < 0.5 else value.reshape(-1)
    elif how == "cast":
        numbers[name] = value.astype(np.float32 if value.dtype == np.float64 else np.float64)
    else:
        if how == "swap":
            flat[i], flat[j] = flat[j], flat[i]
        elif value.dtype in (bool, np.int64):
            flat[i] = not flat[i] if value.dtype == bool else flat[i] + rng.choice([-1, 1, 10**6])
        else:
            _changed(flat, i, how, name, rng)
        numbers[name] = value
    return f"{how} {name}", words, numbers


def _changed(flat: np.ndarray, i: int, how: str, name: str, rng: random.Random) -> None:
    with np.errstate(over="ignore"):
        if how == "all":
            flat *= rng.choice([1 + 1e-12, 1 - 1e-12, 1.001, 0.999, 1.5, 0.5, -1.0, 0.0])
        elif how == "flip":
            flat[i] = -flat[i]
        elif how == "scale":
            flat[i] *= rng.choice([1 + 1e-9, 1 - 1e-9, 1.001, 0.999, 2.0, 0.5, 1e8, 0.0])
        elif how == "nudge":
            flat[i] = np.nextafter(flat[i], flat.dtype.type(rng.choice([-np.inf, np.inf])))
        elif how == "set":
            flat[i] = rng.choice([math.nan, math.inf, -math.inf, 1e300, 1e-320, -0.0, 0.0, 1.0])
        else:  # boxes and reaches wider or tighter, margins and radii less or more
            step = (1 if how == "wide" else -1) * rng.choice([1e-12, 1e-6, 1e-2]) * (1 + abs(float(flat[i])))
            flat[i] += -step if name.endswith(("lower", "margin", "radius")) else step


def _node(words: Any, numbers: Numbers, rng: random.Random) -> tuple[str, Any, Numbers]:
    graph, how = words["graph"], rng.choice(NODE)
    i, j = rng.randrange(len(graph)), rng.randrange(len(graph))
    node = graph[i]
    if how == "op":
        node["op"] = rng.choice(OPS)
    elif how == "input":
        node["inputs"] = [rng.choice([j, i - 1, -1, 0, "1", 0.5]) for _ in node["inputs"]]
    elif how == "shape":
        k = rng.randrange(len(node["shape"]))
        node["shape"][k] = rng.choice([0, 1, -1, node["shape"][k] + 1, 2**40, 1.5])
    elif how == "attribute":
        own = [k for k in node if k not in ("op", "inputs", "shape", "path")] or ["extra"]
        node[rng.choice(own)] = rng.choice([-1, 0, 1, 2, [0, 1, 2, 3], [3, 1], True, 1e-3, None])
    elif how == "drop":
        del graph[i]
    else:
        graph[i], graph[j] = graph[j], graph[i]
    return f"{how} of node {i}", words, numbers


def _word(words: Any, numbers: Numbers, rng: random.Random) -> tuple[str, Any, Numbers]:
    how, i = rng.choice(REST), rng.randrange(len(words["graph"]))
    if how == "label":
        words["claim"]["label"] = rng.choice([0, 1, 2, -1, True])
    elif how == "p":
        words["set"]["p"] = rng.choice([1, 2, "inf", 3.0, 1.5, 0.5, -1, None])
    elif how == "position":
        words["set"]["positions"] = rng.choice([[0], [1], [2], [1, 2], [2, 1], [], [9], [1, 1]])
    elif how == "field":
        part = rng.choice([words, words["model"], words["input"], words["set"], words["claim"]])
        if rng.random() < 0.5:
            part["more"] = 1
        else:
            del part[rng.choice(sorted(part))]
    elif how == "kind":
        words["set"]["kind"] = rng.choice(["ball", "hull", "points", "box"])
    elif how == "ids":
        words["input"]["ids"][0] = rng.choice([0, 1, 3, -1, 10**9])
    elif words["cases"]:
        case = rng.choice(words["cases"])
        if how == "case":
            words["cases"].remove(case)
        elif how == "way":
            table = case[rng.choice(["boxes", "sweeps"])]
            ways = [["interval"], ["sweep"], ["interval", "sweep"], [True], [False], []]
            table[rng.choice(sorted(table))] = rng.choice(ways)
        elif how == "anchor":
            case["anchors"][str(i)] = rng.choice(["form", "box", "none"])
        else:
            case["reaches"] = rng.choice([[], [i], [1], [28]])
    return how, words, numbers


def _rooted(op: str, node: Any, v: list[np.ndarray], held: Numbers, points: int) -> np.ndarray:
    """One operation, in plain floating point."""
    y = v[0]
    shape = (points, *node["shape"][1:])
    own = np.eye(y.shape[-1], dtype=bool)
    table = {
        "linear": lambda: y @ held["weight"].T + held.get("bias", 0.0),
        "add": lambda: y + node["sign"] * v[1],
        "shift": lambda: y + held["value"],
        "scale": lambda: y * held["value"],
        "sum": lambda: (np.mean if node["mean"] else np.sum)(y, axis=tuple(node["axes"]), keepdims=True),
        "center": lambda: y - y.mean(axis=-1, keepdims=True),
        "permute": lambda: y.transpose(node["order"]),
        "reshape": lambda: y.reshape(shape),
        "slice": lambda: y.take(range(node["start"], node["start"] + node["length"]), axis=node["axis"]),
        "concat": lambda: np.concatenate(v, axis=node["axis"]),
        "expand": lambda: np.broadcast_to(y, shape),
        "relu": lambda: np.maximum(y, 0),
        "tanh": lambda: np.tanh(y),
        "sigmoid": lambda: 1 / (1 + np.exp(-y)),
        "gelu": lambda: y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2,
        "multiply": lambda: y * v[1],
        "matmul": lambda: y @ v[1],
        "softmax_of_differences": lambda: 1 / np.exp(np.where(own, 0.0, y)).sum(axis=-1),
        "normalize": lambda: y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + node["eps"]),
    }
    return np.asarray(table[op]())


def evaluated(graph: list[dict[str, Any]], numbers: Numbers, x: np.ndarray) -> np.ndarray:
    """Logits of points `[points, n, d]`."""
    values: list[np.ndarray] = [x]
    constants: dict[int, Numbers] = {}
    for name, value in numbers.items():
        if name.startswith("graph."):
            _, i, part = name.split(".")
            constants.setdefault(int(i), {})[part] = value.astype(float)
    for i, node in enumerate(graph[1:], 1):
        held = constants.get(i, {})
        if node["op"] == "constant":
            values.append(np.repeat(held["value"], len(x), axis=0))
        else:
            values.append(_rooted(node["op"], node, [values[j] for j in node["inputs"]], held, len(x)))
    return values[-1]


def violation(words: Any, numbers: Numbers, rng: random.Random) -> float:
    """How far below what is claimed an attack gets; 0 or less where it finds nothing."""
    with np.errstate(all="ignore"):
        points = _points(words, numbers, np.random.default_rng(rng.randrange(2**32)))
        logits = evaluated(words["graph"], numbers, points)
    label, margin = words["claim"]["label"], numbers["claim.margin"]
    return float((margin - (logits[:, [label]] - np.delete(logits, label, axis=1))).max())


def _points(words: Any, numbers: Numbers, rng: np.random.Generator) -> np.ndarray:
    x0, positions, label = numbers["input.embeddings"], words["set"]["positions"], words["claim"]["label"]
    if words["set"]["kind"] != "ball":
        chosen = list(itertools.product(*(range(c) for c in numbers["set.counts"])))[:500]
        x = np.repeat(x0[None], len(chosen), axis=0)
        for j, position in enumerate(positions):
            x[:, position] = numbers["set.vertices"][j][[c[j] for c in chosen]]
        return x
    radius, t, d = numbers["set.radius"], len(positions), x0.shape[1]

    def worst(direction: np.ndarray) -> np.ndarray:
        x = np.repeat(x0[None], len(direction), axis=0)
        x[:, positions] += radius[:, None] * _farthest(direction, words["set"]["p"]) * (1 - 1e-12)
        return x

    found, centre = [x0[None], worst(rng.normal(size=(60, t, d)))], x0
    for _ in range(3):  # downhill, by differences
        steps = np.eye(t * d).reshape(-1, t, d) * 1e-5
        x = np.repeat(centre[None], 2 * len(steps), axis=0)
        x[:, positions] += np.concatenate([steps, -steps])
        logits = evaluated(words["graph"], numbers, x)
        margins = logits[:, label] - np.delete(logits, label, axis=1).max(axis=1)
        slope = margins[: len(steps)] - margins[len(steps) :]
        found.append(worst(-slope.reshape(1, t, d)))
        centre = found[-1][0]
    return np.concatenate(found)


def _farthest(direction: np.ndarray, p: Any) -> np.ndarray:
    """The point of the unit ball that lies farthest in a direction, along the last axis."""
    size = np.abs(direction) + 1e-300
    if p == 1:
        return np.asarray(np.eye(direction.shape[-1])[size.argmax(axis=-1)] * np.sign(direction))
    if p == "inf":
        return np.sign(direction)
    unit = np.sign(direction) * (size / size.max(axis=-1, keepdims=True)) ** (1 / (p - 1))
    return np.asarray(unit / (np.abs(unit) ** p).sum(axis=-1, keepdims=True) ** (1 / p))
