"""From a PyTorch module to an op graph, through torch.export or, where that is enough, by calling it on a symbol."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelError, UnsupportedError
from ..ops.base import Shape
from .build import Builder, Ref, lowerings
from .direct import trace
from .graph import Graph
from .hints import nearest


def capture(module: nn.Module, example: Tensor) -> Graph:
    """The graph of `module` on inputs shaped like `example` `[1, ...]`, in the precision of `example`.

    The batch axis of the module is kept at 1 and belongs to a node's shape; instances have an axis of their own in
    front, so no rule about batches is needed. The graph is checked against the module at the example and around it.
    """
    module = module.eval()
    with torch.no_grad():
        builder = Builder(example[None])
        output = trace(module, builder) if getattr(module, "direct", False) else None
        if output is None:
            builder = Builder(example[None])
            output = _walk(_export(module, example), builder)
        if builder.problems:
            raise UnsupportedError(_report(module, builder.problems))
        if not isinstance(output, Ref) or not builder.nodes[output.index].perturbed:
            raise ModelError(f"the output of {type(module).__name__} does not depend on the embeddings")
        graph = builder.graph(output)
        agree(graph, module, example)
    return graph


def agree(graph: Graph, module: nn.Module, example: Tensor) -> None:
    """Check that a graph computes what the module does, at an example and at points around it, near and far."""
    generator = torch.Generator().manual_seed(0)
    size = float(example.std()) if example.numel() > 1 else 1.0
    with torch.no_grad():
        for distance in (0.0, 0.1, 1.0, 10.0):
            noise = torch.randn(example.shape, generator=generator, dtype=torch.float64).to(example)
            x = example + distance * (size or 1.0) * noise
            expected, found = module(x), graph.values(x[None], graph.values(example[None]))[-1][0]
            if distance and not bool(torch.isfinite(found).all() and torch.isfinite(expected).all()):
                continue  # so far out that numbers overflow: nothing to compare
            scale = expected.abs().max().clamp(min=1)
            if found.shape != expected.shape or not bool(((found - expected).abs().max() / scale) < 1e-4):
                raise ModelError(
                    f"the captured graph of {type(module).__name__} does not reproduce the module "
                    f"({_numbers(found)} instead of {_numbers(expected)}): does it depend on more than its input?"
                )


def _numbers(x: Tensor) -> str:
    return str([round(float(v), 6) for v in x.flatten()[:4]])


def _export(module: nn.Module, example: Tensor) -> Any:
    from torch.export import default_decompositions, export

    try:
        with warnings.catch_warnings():  # the exporter's notes to itself
            warnings.simplefilter("ignore")
            program = export(module, (example,), strict=False)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"torch.export could not capture {type(module).__name__}: {first}") from error
    table: Any = default_decompositions()
    known = set(lowerings())
    for op in list(table):
        if str(op) in known:
            table.pop(op)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run_decompositions(table)


def _walk(program: Any, builder: Builder) -> Any:
    table = lowerings()
    signature = program.graph_signature
    constants = {**program.state_dict, **program.constants}
    lifted = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    lifted.update(getattr(signature, "inputs_to_lifted_tensor_constants", {}))
    env: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            env[node] = constants[lifted[node.name]] if node.name in lifted else Ref(0)
        elif node.op == "get_attr":
            env[node] = getattr(program.graph_module, node.target)
        elif node.op == "output":
            outputs = [torch.fx.node.map_arg(a, env.__getitem__) for a in node.args[0]]
            return outputs[0] if len(outputs) == 1 else builder.unsupported(f"{len(outputs)} outputs instead of one")
        else:
            env[node] = _step(node, env, builder, table)
    raise ModelError("the exported program has no output")


def _step(node: Any, env: dict[Any, Any], builder: Builder, table: dict[str, Any]) -> Any:
    args = torch.fx.node.map_arg(node.args, env.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
    builder.target = str(node.target)
    builder.path = _path(node)
    builder.result_shape = _shape(node)
    if builder.target == "<built-in function getitem>":
        if isinstance(args[0], Ref):  # one of the results of something unsupported
            return builder.standin()
        return args[0][args[1]]
    if not _touches(args, builder) and not _touches(tuple(kwargs.values()), builder):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return builder.unsupported("random numbers")
        return node.target(*args, **kwargs)  # constants fold
    value = node.meta.get("val")
    if isinstance(value, Tensor) and value.dtype not in (torch.float32, torch.float64):
        return builder.unsupported(f"a result of type {str(value.dtype).removeprefix('torch.')}")
    if builder.target not in table:
        hint = nearest(builder.target, table)
        return builder.unsupported(f"not supported; {hint}" if hint else "not supported")
    return table[builder.target].lower(builder, tuple(args), dict(kwargs))


def _touches(args: Any, builder: Builder) -> bool:
    if isinstance(args, (tuple, list)):
        return any(_touches(a, builder) for a in args)
    return builder.is_node(args)


def _shape(node: Any) -> Shape:
    value = node.meta.get("val")
    return tuple(int(s) for s in value.shape) if isinstance(value, Tensor) else ()


def _path(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def _report(module: nn.Module, problems: list[str]) -> str:
    unique = list(dict.fromkeys(problems))
    lines = "\n".join(f"  - {p}" for p in unique)
    return f"{type(module).__name__} uses {len(unique)} thing(s) that cannot be bounded yet:\n{lines}"
