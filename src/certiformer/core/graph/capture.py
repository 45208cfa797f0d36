"""From a PyTorch module to an op graph, through torch.export or, where that is enough, by calling it on a symbol."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import CertiformerError, ModelError, UnsupportedError, title
from ..lowering import TABLE, Ref
from .agreement import agree, points
from .build import Builder
from .direct import trace
from .graph import Graph


def capture(module: nn.Module, example: Tensor) -> Graph:
    """The graph of `module` on inputs shaped like `example` `[1, ...]`, in the precision of `example`.

    The batch axis of the module is kept at 1 and belongs to a node's shape; instances have an axis of their own in
    front, so no rule about batches is needed. The graph is checked against the module at the example and around it.
    """
    module = module.eval()
    with torch.no_grad():
        examples = points(example, (0.0, 1.0))
        builder = Builder(examples)
        output = trace(module, builder) if getattr(module, "direct", False) else None
        if output is None:
            builder = Builder(examples)
            output = _walked(module, example, builder)
        if builder.problems:
            raise UnsupportedError(_report(module, builder.problems))
        if not isinstance(output, Ref) or not builder.nodes[output.index].perturbed:
            raise ModelError(f"the output of {title(module)} does not depend on the embeddings")
        graph = builder.graph(output)
        agree(graph, module, example)
    return graph


def follow(module: nn.Module, example: Tensor, program: Any) -> Graph:
    """The graph of a module whose constants are its own parameters, so that gradients reach them: `program` is what
    `exported` gave for this shape. It is not compared with the module, so nothing is proved of it."""
    builder = Builder(points(example, (0.0, 1.0)))
    with torch.enable_grad():
        weights = dict(module.named_parameters())
        output = trace(module, builder) if program is None else _walk(program, builder, weights)
        if builder.problems:
            raise UnsupportedError(_report(module, builder.problems))
        assert isinstance(output, Ref)
        return builder.graph(output)


def exported(module: nn.Module, example: Tensor) -> Any:
    """What `follow` needs of a module for inputs of one shape; None where the module itself is enough."""
    with torch.no_grad():
        capture(module, example)  # errors come here, in one line
        direct = getattr(module, "direct", False) and trace(module, Builder(points(example, (0.0,)))) is not None
        return None if direct else _export(module, example)


def _export(module: nn.Module, example: Tensor) -> Any:
    from torch.export import default_decompositions, export  # takes seconds to load, and direct modules do without

    try:
        with warnings.catch_warnings():  # the exporter's notes to itself
            warnings.simplefilter("ignore")
            program = export(module, (example,), strict=False)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"torch.export could not capture {title(module)}: {first}") from error
    if _known(program):
        return program  # to take it apart would give it back, and takes longer than to export it
    table: Any = default_decompositions()
    for op in TABLE:
        table.pop(op, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run_decompositions(table)


def _known(program: Any) -> bool:
    """Whether every step of an exported program can be taken as it is: a row of the table, or computed from constants
    alone. What changes a tensor in place, or draws numbers, is neither."""
    lifted = {*program.graph_signature.inputs_to_parameters, *program.graph_signature.inputs_to_buffers}
    lifted |= {*getattr(program.graph_signature, "inputs_to_lifted_tensor_constants", {})}
    touched = set()
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name not in lifted:
            touched.add(node)
        elif node.op == "call_function":
            if any(before in touched for before in node.all_input_nodes):
                touched.add(node)
            if node.target is not operator.getitem and not _as_it_is(node.target, node in touched):
                return False
    return True


def _as_it_is(target: Any, touched: bool) -> bool:
    if not hasattr(target, "_schema") or target._schema.is_mutable:
        return False
    return target in TABLE or not (touched or torch.Tag.nondeterministic_seeded in target.tags)


def _walked(module: nn.Module, example: Tensor, builder: Builder) -> Any:
    """The walk through an exported module; whatever happens on it becomes one line."""
    try:
        return _walk(_export(module, example), builder)
    except CertiformerError:
        raise
    except Exception as error:  # such as sizes that depend on the input
        if builder.problems:  # what follows something unsupported may well fail
            return None
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        where = f" at {builder.path}" if builder.path else ""
        raise UnsupportedError(
            f"{title(module)} could not be captured{where}: {type(error).__name__} {first}".rstrip()
        ) from error


def _walk(program: Any, builder: Builder, weights: Mapping[str, Tensor] | None = None) -> Any:
    signature = program.graph_signature
    constants = {**program.state_dict, **program.constants, **(weights or {})}
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
            env[node] = _step(node, env, builder)
    raise ModelError("the exported program has no output")


def _step(node: Any, env: dict[Any, Any], builder: Builder) -> Any:
    args = torch.fx.node.map_arg(node.args, env.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
    builder.path = _path(node)
    if node.target is operator.getitem:
        # of one of the results of something unsupported there is a stand-in
        return builder.standin(tuple(node.meta["val"].shape)) if isinstance(args[0], Ref) else args[0][args[1]]
    return builder.call(node.target, tuple(args), dict(kwargs), node.meta.get("val"))


def _path(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def _report(module: nn.Module, problems: list[str]) -> str:
    unique = list(dict.fromkeys(problems))
    lines = "\n".join(f"  - {p}" for p in unique)
    return f"{title(module)} uses {len(unique)} thing(s) that cannot be bounded yet:\n{lines}"
