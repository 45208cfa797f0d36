"""A text, ids, embeddings or a picture as a model takes them, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ModelError, short, title
from .device import place
from .faithful import at, run
from .model import Encoding, Model

Inputs = str | Sequence[int] | Tensor
WHOLE = "input"  # what an input without positions is called


def label_name(model: Model, label: int) -> str:
    """The name of a label, or its number where the model has no names."""
    return model.labels[label] if label < len(model.labels) else str(label)


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


def read(model: Model, inputs: Inputs, *, dtype: torch.dtype) -> tuple[Encoding, dict[str, Tensor], Tensor]:
    """An input as tokens, as arguments of the model's own forward pass (none for embeddings), and as embeddings."""
    where = place(model)
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        x = as_given(model, inputs).to(device=where, dtype=dtype)
        picture = model.read is not None and tuple(inputs.shape[-2:]) != tuple(x.shape[-2:])
        arguments = {"pixel_values": inputs.reshape(1, *inputs.shape[-3:]).to(x)} if picture else {}
        tokens = tuple(f"#{i}" for i in range(x.shape[1])) if x.dim() == 3 else (WHOLE,)
        return Encoding((), tokens, (None,) * len(tokens), (False,) * len(tokens)), arguments, x
    encoding = _encode(model, inputs) if isinstance(inputs, str) else _from_ids(model, inputs)
    _check_length(model, encoding.ids)
    arguments = {"input_ids": torch.tensor([encoding.ids], device=where)}
    arguments |= {name: torch.tensor([value], device=where) for name, value in encoding.arguments}
    return encoding, arguments, embed_ids(model, arguments["input_ids"], dtype=dtype)


def as_tensor(model: Model, inputs: Any) -> Any:
    """An array of NumPy or the like as a tensor; of a model that takes tensors of a shape, nested lists of numbers too.
    Texts, tensors and ids stay what they are."""
    shaped = model.shape is not None or model.read is not None
    listed = shaped and isinstance(inputs, Sequence)
    if isinstance(inputs, (str, Tensor)) or not (listed or hasattr(inputs, "__array__")):
        return inputs
    try:
        return torch.as_tensor(inputs, dtype=torch.float64 if listed else None)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"inputs={short(inputs)}: expected numbers, as many in each row") from None


def as_given(model: Model, inputs: Tensor) -> Tensor:
    """A tensor of numbers as the module takes it: embeddings `[1, n, d]`, patches, or `[1, *shape]`; a copy."""
    inputs = inputs.detach().clone()
    if model.read is not None:
        return model.read(inputs)
    found = tuple(inputs.shape)
    if model.shape is not None:
        if found not in (model.shape, (1, *model.shape)):
            raise InputError(f"inputs: expected a tensor {list(model.shape)}, found one of shape {list(found)}")
        return inputs.reshape(1, *model.shape)
    if len(found) < 2 or 0 in found or (len(found) > 2 and found[0] != 1):
        raise InputError(
            f"inputs: expected embeddings [n, d] or [1, n, d], found a tensor of shape {list(found)}; "
            "for other tensors say the shape of one input: cf.load(module, shape=...)"
        )
    return inputs[None] if len(found) == 2 else inputs


def _encode(model: Model, text: str) -> Encoding:
    if model.tokenizer is None:
        raise InputError(f"model {model.name!r} has no tokenizer: give ids or embeddings, or load it with tokenizer=")
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


def logits_at(model: Model, embeddings: Tensor, *, given: bool, least: int = 2) -> Tensor:
    """The logits `[1, classes]` of a module at embeddings, which were `given` or are those of a text or ids."""
    logits = at(model.module, embeddings, InputError if given else ModelError)
    return checked(model, logits, f"embeddings {list(embeddings.shape)}", least)


def checked(model: Model, logits: object, given: str, least: int = 2) -> Tensor:
    """Logits as they must be for an answer: `[1, classes]`, at `least` so many, and finite."""
    name = title(model.module)
    if not isinstance(logits, Tensor):
        raise ModelError(f"{name} must give logits [1, classes], found a {type(logits).__name__}")
    if logits.dim() != 2 or logits.shape[0] != 1 or logits.shape[1] < least:
        raise ModelError(
            f"{name} must give logits [1, classes] with at least {least} classes, found shape {list(logits.shape)} "
            f"for {given}"
        )
    if not torch.isfinite(logits).all():
        raise ModelError(f"{name} gives logits that are not finite on this input: {logits.flatten().tolist()}")
    return logits.detach()
