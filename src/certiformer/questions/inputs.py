"""What is asked about: a text, ids or embeddings become one checked input; words become sets of positions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.names import BoundOptions
from ..core.problem import Instance, Problem
from ..errors import InputError, ModelError, short
from ..models.device import place
from ..models.faithful import at, faithful, run
from ..models.model import Encoding, Model
from ..options import Device, Precision
from .workspace import Workspace, precision

Inputs = str | Sequence[int] | Tensor

UNKNOWN_TOKENS = ("[UNK]", "<unk>")


@dataclass(frozen=True, eq=False)
class Prepared:
    """One input, ready to be bounded or attacked. `model` is the workspace's copy of it."""

    workspace: Workspace
    model: Model
    embeddings: Tensor  # [1, n, d]
    ids: tuple[int, ...] | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    spans: tuple[tuple[int, int] | None, ...] | None
    text: str | None
    label: int
    margin: float
    logits: Tensor  # [1, classes]
    note: str | None = None  # what a reader should know, such as words the model does not know
    constants: Hashable = ()  # what `model.module` takes from this input besides embeddings; graphs are shared by these

    @property
    def label_name(self) -> str:
        """The name of the label, or its number."""
        return label_name(self.model, self.label)

    def written(self, position: int) -> str:
        """The word at a position as the text has it, or its token."""
        span = None if self.text is None or self.spans is None else self.spans[position]
        return self.tokens[position] if span is None or self.text is None else self.text[span[0] : span[1]].strip()

    def cast(self, dtype: Precision) -> Model:
        """The same copy of the model in another precision."""
        return self.workspace.on(dtype=dtype, device=self.embeddings.device).model

    @property
    def words(self) -> tuple[int, ...]:
        """The positions that may be perturbed."""
        return tuple(i for i, special in enumerate(self.special) if not special)


def problem_of(
    questions: list[tuple[Prepared, tuple[int, ...]]],
    options: BoundOptions | None = None,
    *,
    p: float,
    examples: list[Tensor] | None = None,
    **changes: Any,
) -> Problem:
    """Inputs of one length, each with a set of positions, as a batch of instances; `changes` are of the options.

    The captured graph is compared with the model at each of the inputs, or at the `examples` instead.
    """
    first = questions[0][0]
    if any(q.constants != first.constants for q, _ in questions):
        raise InputError("inputs with other constants, such as token types, cannot share a graph: ask one by one")
    inputs = {id(q): q.embeddings for q, _ in questions}
    return Problem.of(
        first.workspace.on(dtype=first.embeddings.dtype, device=first.embeddings.device).captured,
        [Instance(q.embeddings, positions, q.label) for q, positions in questions],
        examples=list(inputs.values()) if examples is None else examples,
        p=p,
        options=replace(BoundOptions() if options is None else options, **changes),
    )


def label_name(model: Model, label: int) -> str:
    """The name of a label, or its number where the model has no names."""
    return model.labels[label] if label < len(model.labels) else str(label)


def prepare(
    model: Model | Workspace,
    inputs: Inputs,
    *,
    label: int | None = None,
    dtype: Precision = "float64",
    device: Device = None,
) -> Prepared:
    """Check `inputs` (a text, token ids, embeddings `[n, d]` or `[1, n, d]`, or a picture) and run the model on them.

    `label` is the class to defend; by default the predicted one. Given embeddings, every position may be perturbed.
    """
    workspace = model if isinstance(model, Workspace) else Workspace(model)
    model = workspace.on(dtype=dtype, device=device).model
    given = isinstance(inputs, Tensor) and inputs.is_floating_point()
    encoding, arguments, embeddings = _read(model, inputs, dtype=precision(dtype))
    if not torch.isfinite(embeddings).all():
        raise InputError(f"the embeddings {list(embeddings.shape)} hold infinity or NaN")
    exact = partial(workspace.on, dtype=torch.float64, device=device)
    way = faithful(model, arguments, embeddings, exact=lambda: exact().model)
    if way is not None:
        workspace = workspace.along(way)
        model = workspace.on(dtype=dtype, device=device).model
    logits = _logits(model, embeddings, given=given)
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
        constants=() if way is None else way.key,
    )


def embed_ids(model: Model, ids: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Raw embeddings `[batch, n, d]` of ids `[batch, n]`."""
    if model.embed is None:
        raise ModelError(f"model {model.name!r} has no embed: give embeddings [n, d] instead of text or ids")
    embed = model.embed
    asked = f"the embeddings of model {model.name!r} could not be looked up for ids of shape {list(ids.shape)}"
    found = run(lambda: embed(ids), asked)
    if not isinstance(found, Tensor) or found.dim() != 3:
        raise ModelError(f"{asked}: expected a tensor [batch, n, d], found {getattr(found, 'shape', type(found))}")
    return found.to(device=ids.device, dtype=dtype)


def margins(logits: Tensor, label: int) -> Tensor:
    """`logits[label] - max(other logits)` for logits `[batch, classes]`; at or below 0 the label is not the answer."""
    others = logits.clone()
    others[:, label] = -math.inf
    return logits[:, label] - others.amax(dim=1)


def _read(model: Model, inputs: Inputs, *, dtype: torch.dtype) -> tuple[Encoding, dict[str, Tensor], Tensor]:
    """An input as tokens, as arguments of the model's own forward pass (none for embeddings), and as embeddings."""
    where = place(model)
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        x = _embeddings(inputs if model.read is None else model.read(inputs), dtype=dtype, device=where)
        n = x.shape[1]
        picture = model.read is not None and tuple(inputs.shape[-2:]) != tuple(x.shape[-2:])
        arguments = {"pixel_values": inputs.reshape(1, *inputs.shape[-3:]).to(x)} if picture else {}
        return Encoding((), tuple(f"#{i}" for i in range(n)), (None,) * n, (False,) * n), arguments, x
    encoding = _encode(model, inputs) if isinstance(inputs, str) else _from_ids(model, inputs)
    _check_length(model, encoding.ids)
    arguments = {"input_ids": torch.tensor([encoding.ids], device=where)}
    arguments |= {name: torch.tensor([value], device=where) for name, value in encoding.arguments}
    return encoding, arguments, embed_ids(model, arguments["input_ids"], dtype=dtype)


def _embeddings(inputs: Tensor, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = list(inputs.shape)
    if inputs.dim() not in (2, 3) or (inputs.dim() == 3 and shape[0] != 1) or 0 in shape:
        raise InputError(f"inputs: expected embeddings [n, d] or [1, n, d], found a tensor of shape {shape}")
    return inputs.detach().reshape(1, *shape[-2:]).to(device=device, dtype=dtype)  # [1, n, d]


def _encode(model: Model, text: str) -> Encoding:
    if model.tokenizer is None:
        raise InputError(f"model {model.name!r} has no tokenizer: give token ids or embeddings instead of text")
    encoding = model.tokenizer.encode(text)
    if all(encoding.special):
        raise InputError(f"the text {short(text)} holds no word: give a sentence")
    return encoding


def _from_ids(model: Model, inputs: Sequence[int] | Tensor) -> Encoding:
    if isinstance(inputs, Tensor):
        if inputs.dtype == torch.bool or inputs.dim() not in (1, 2) or (inputs.dim() == 2 and inputs.shape[0] != 1):
            raise InputError(f"inputs: expected ids [n] or [1, n], found {inputs.dtype} of shape {list(inputs.shape)}")
        inputs = [int(i) for i in inputs.flatten()]
    if (
        isinstance(inputs, (bytes, bytearray))
        or not isinstance(inputs, Sequence)
        or any(isinstance(i, bool) or not isinstance(i, int) for i in inputs)
    ):
        raise InputError(f"inputs={short(inputs)}: expected a text, a list of token ids, or a tensor of embeddings")
    ids = tuple(inputs)
    if all(i in model.special for i in ids):
        raise InputError(f"inputs={short(list(ids))}: no word is left without the special tokens")
    size = len(model.vocabulary) or None
    bad = [i for i in ids if i < 0 or (size is not None and i >= size)]
    if bad:
        raise InputError(f"inputs={short(list(ids))}: id {bad[0]} is not in the vocabulary of {size or '?'} tokens")
    return Encoding(ids, tuple(_decode(model, ids)), (None,) * len(ids), tuple(i in model.special for i in ids))


def _decode(model: Model, ids: tuple[int, ...]) -> list[str]:
    if model.tokenizer is not None:
        return model.tokenizer.decode(list(ids))
    return [model.vocabulary[i] for i in ids] if model.vocabulary else [str(i) for i in ids]


def _check_length(model: Model, ids: tuple[int, ...]) -> None:
    if model.max_length is not None and len(ids) > model.max_length:
        raise InputError(
            f"the input has {len(ids)} tokens, model {model.name!r} takes at most {model.max_length}: shorten the text"
        )


def _logits(model: Model, embeddings: Tensor, *, given: bool) -> Tensor:
    name, shape = type(model.module).__name__, list(embeddings.shape)
    logits = at(model.module, embeddings, InputError if given else ModelError)
    if not isinstance(logits, Tensor):
        raise ModelError(f"{name} must give logits [1, classes], found a {type(logits).__name__}")
    if logits.dim() != 2 or logits.shape[0] != 1 or logits.shape[1] < 2:
        raise ModelError(
            f"{name} must give logits [1, classes] with at least 2 classes, found shape {list(logits.shape)} "
            f"for embeddings {shape}"
        )
    if not torch.isfinite(logits).all():
        raise ModelError(f"{name} gives logits that are not finite on this input: {logits.flatten().tolist()}")
    return logits.detach()


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
