"""What is asked about: a text, ids or embeddings become one checked input; words become sets of positions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.names import Arithmetic, BoundOptions
from ..core.problem import Instance, Problem
from ..errors import InputError, ModelError
from ..models.faithful import faithful
from ..models.model import Encoding, Model
from ..models.reading import Inputs as Inputs
from ..models.reading import as_tensor, logits_at, read
from ..models.reading import embed_ids as embed_ids
from ..models.reading import label_name as label_name
from ..models.reading import margins as margins
from ..options import Device, Options, Precision
from .workspace import Workspace, precision

DEPLOYED: dict[Arithmetic, torch.dtype] = {"real": torch.float64, "float32": torch.float32}
UNKNOWN_TOKENS = ("[UNK]", "<unk>")


@dataclass(frozen=True, eq=False)
class Prepared:
    """One input, ready to be bounded or attacked. `model` is the workspace's copy of it."""

    workspace: Workspace
    model: Model
    embeddings: Tensor  # [1, n, d], or [1, *shape] where the input has no positions
    ids: tuple[int, ...] | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    spans: tuple[tuple[int, int] | None, ...] | None
    text: str | None
    label: int
    margin: float
    logits: Tensor  # [1, classes]
    note: str | None = None  # what a reader should know, such as words the model does not know
    arguments: tuple[tuple[str, Any], ...] = ()  # what the tokenizer returned besides ids
    constants: Hashable = ()  # what `model.module` takes from this input besides embeddings; graphs are shared by these

    @property
    def label_name(self) -> str:
        """The name of the label, or its number."""
        return label_name(self.model, self.label)

    def written(self, position: int) -> str:
        """The word at a position as the text has it, or its token."""
        span = None if self.text is None or self.spans is None else self.spans[position]
        return self.tokens[position] if span is None or self.text is None else self.text[span[0] : span[1]].strip()

    @property
    def has_positions(self) -> bool:
        """Whether the input is positions of some numbers each; else it moves as a whole."""
        return self.embeddings.dim() == 3

    @property
    def blocks(self) -> Tensor:
        """The input by positions, `[1, n, d]`: one where it has none."""
        return self.embeddings if self.has_positions else self.embeddings.reshape(1, 1, -1)

    def cast(self, dtype: Precision) -> Model:
        """The same copy of the model in another precision."""
        return self.workspace.on(dtype=dtype, device=self.embeddings.device).model

    @property
    def movable(self) -> tuple[int, ...]:
        """The positions that may be perturbed."""
        return tuple(i for i, special in enumerate(self.special) if not special)


def problem_of(
    questions: list[tuple[Prepared, tuple[int, ...]]],
    options: BoundOptions | None = None,
    *,
    p: float,
    joint: bool = False,
    examples: list[Tensor] | None = None,
    run: bool = True,
    **changes: Any,
) -> Problem:
    """Inputs of one length, each with a set of positions, as a batch of instances; `changes` are of the options.

    The captured graph is compared with the model at each of the inputs, or at the `examples` instead. In float32
    arithmetic the model is also `run` in it, and compared with the bounds.
    """
    first = questions[0][0]
    if any(q.constants != first.constants for q, _ in questions):
        raise InputError("inputs with other constants, such as token types, cannot share a graph: ask one by one")
    inputs = {id(q): q.embeddings for q, _ in questions}
    problem = Problem.of(
        first.workspace.on(dtype=first.embeddings.dtype, device=first.embeddings.device).captured,
        [Instance(q.embeddings, positions if q.has_positions else None, q.label) for q, positions in questions],
        examples=list(inputs.values()) if examples is None else examples,
        p=p,
        joint=joint or not first.has_positions,
        options=replace(BoundOptions() if options is None else options, **changes),
    )
    if run and problem.arithmetic == "float32":
        _check_deployed(problem, questions)
    return problem


def _check_deployed(problem: Problem, questions: list[tuple[Prepared, tuple[int, ...]]]) -> None:
    """The model's own forward pass in float32 must lie within the bounds at the inputs themselves."""
    first = {id(q): k for k, (q, _) in reversed(list(enumerate(questions)))}
    chosen = sorted(first.values())
    bounds = problem.margins(torch.zeros(len(chosen), dtype=problem.centre.dtype), chosen)
    for row, k in enumerate(chosen):
        if bounds.reasons[row] is not None:
            continue
        q = questions[k][0]
        logits = logits_at(q.cast(torch.float32), q.embeddings.float(), given=False).to(problem.centre)
        found = (problem.rows([k])[0, :, 0] * logits).sum(dim=1)
        if not bool(((bounds.lower[row] <= found) & (found <= bounds.upper[row])).all()):
            raise ModelError(
                f"arithmetic='float32': model {q.model.name!r} gives margins {found.tolist()} in float32, which "
                f"rounding does not explain: does it compute something else in float32, or in less than that?"
            )


def prepare(
    model: Model | Workspace,
    inputs: Inputs,
    *,
    label: int | None = None,
    dtype: Precision = "float64",
    device: Device = None,
    arithmetic: Arithmetic = "real",
    outputs: int = 2,
) -> Prepared:
    """Check `inputs` (a text, token ids, embeddings `[n, d]` or `[1, n, d]`, or a picture) and run the model on them.

    `label` is the class to defend; by default the predicted one. Given embeddings, every position may be perturbed. In
    float32 arithmetic, embeddings are what the model computes in float32. The model must have so many `outputs`.
    """
    workspace = model if isinstance(model, Workspace) else Workspace(model)
    model = workspace.on(dtype=dtype, device=device).model
    inputs = as_tensor(model, inputs)
    given = isinstance(inputs, Tensor) and inputs.is_floating_point()
    encoding, arguments, embeddings = read(model, inputs, dtype=precision(dtype))
    if not torch.isfinite(embeddings).all():
        raise InputError(f"the embeddings {list(embeddings.shape)} hold infinity or NaN")
    exact = partial(workspace.on, dtype=torch.float64, device=device)
    route = faithful(model, arguments, embeddings, exact=lambda: exact().model)
    if route is not None:
        workspace = workspace.along(route)
        model = workspace.on(dtype=dtype, device=device).model
    if arithmetic == "float32" and not given:
        single = workspace.on(dtype=torch.float32, device=device).model
        embeddings = read(single, inputs, dtype=torch.float32)[2].to(embeddings)
    logits = logits_at(model, embeddings, given=given, least=outputs)
    label = _label(label, logits)
    return Prepared(
        workspace=workspace,
        model=model,
        embeddings=embeddings,
        ids=None if given else encoding.ids,
        tokens=encoding.tokens,
        special=encoding.special,
        spans=encoding.spans if isinstance(inputs, str) else None,
        text=inputs if isinstance(inputs, str) else None,
        label=label,
        margin=float(margins(logits, label)[0]),
        logits=logits,
        note=None if given else _note(model, encoding),
        arguments=encoding.arguments,
        constants=() if route is None else route.key,
    )


def prepare_for(
    workspace: Workspace, inputs: Inputs, label: int | None, options: Options, *, outputs: int = 2
) -> Prepared:
    """An input as the options ask for it."""
    return prepare(
        workspace,
        inputs,
        label=label,
        dtype=options.dtype,
        device=options.device,
        arithmetic=options.arithmetic,
        outputs=outputs,
    )


def prepare_exactly(
    workspace: Workspace, inputs: Inputs, label: int | None, options: Options, *, outputs: int = 2
) -> Prepared:
    """An input in float64, in which counterexamples are checked; in float32 where a model runs in nothing else, and
    that is asked for."""
    try:
        return prepare_for(workspace, inputs, label, replace(options, dtype="float64"), outputs=outputs)
    except (InputError, ModelError):
        if options.dtype != "float32":
            raise
        return prepare_for(workspace, inputs, label, options, outputs=outputs)


def checked_in(prepared: Prepared, options: Options) -> torch.dtype:
    """What counterexamples are forward passes in."""
    deployed = DEPLOYED[options.arithmetic]
    return deployed if prepared.embeddings.dtype == torch.float64 else torch.float32


def _label(label: int | None, logits: Tensor) -> int:
    if label is None:
        return int(logits.argmax(dim=1))
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < logits.shape[1]:
        raise InputError(f"label={label!r}: expected a class from 0 to {logits.shape[1] - 1}")
    return label


def _note(model: Model, encoding: Encoding) -> str | None:
    unknown = {model.vocabulary.index(token) for token in UNKNOWN_TOKENS if token in model.vocabulary}
    words = [token for token, is_special in zip(encoding.tokens, encoding.special, strict=True) if not is_special]
    missed = [token for i, token in zip(encoding.ids, encoding.tokens, strict=True) if i in unknown]
    if not missed:
        return None
    if len(missed) == len(words):
        return f"the model knows none of these {len(words)} words and reads each as {UNKNOWN_TOKENS[0]}"
    names = ", ".join(dict.fromkeys(missed))
    return f"not in the model's vocabulary, read as {UNKNOWN_TOKENS[0]}: {names}"
