"""Hugging Face models as modules on what is perturbed: word embeddings, or the patches of a picture.

`own` is the model's own forward pass, as a user would call it. `forward` computes the same from embeddings, and there
are several `routes` to that: most models take `inputs_embeds`; some want the tokenizer's other arguments with them; and
what a model derives from ids (positions, masks, the last token that is no padding) needs the ids: these go in as
constants, and only what the model's table of words gives is replaced.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError
from .pictures import Cut

Arguments = Mapping[str, Tensor]
_GIVEN: ContextVar[list[Tensor] | None] = ContextVar("given", default=None)  # embeddings not yet put in place


class FromEmbeddings(nn.Module):
    """Word embeddings `[batch, n, d]` -> logits `[batch, classes]` of a Hugging Face model.

    `token` chooses a row of token-level logits. A single output, a regression, becomes two: the value minus
    `threshold`, and 0; their difference is the value itself. `constants` `[1, ...]` go in with the embeddings.
    """

    def __init__(
        self, model: nn.Module, *, token: int | None = None, threshold: float = 0.0, constants: Arguments | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.title = type(model).__name__
        self.token = token
        self.threshold = threshold
        self.constant_names = tuple(constants or ())
        for name, value in (constants or {}).items():
            self.register_buffer(f"constant_{name}", value, persistent=False)

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.run(inputs_embeds=embeddings, **self.constants(len(embeddings)))

    def own(self, arguments: Arguments) -> Tensor:
        """The logits of the model's own forward pass."""
        return self.run(**arguments)

    def accepted(self, arguments: Arguments) -> dict[str, Tensor]:
        """Those of a tokenizer's arguments that the model takes."""
        taken = inspect.signature(self.model.forward).parameters
        every = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        return {name: value for name, value in arguments.items() if every or name in taken}

    def routes(self, arguments: Arguments) -> Iterator[FromEmbeddings]:
        """Modules on embeddings that may compute what `own` does with these arguments, the simplest first."""
        yield self
        others = {name: value for name, value in arguments.items() if name != "input_ids"}
        if others:
            yield FromEmbeddings(self.model, token=self.token, threshold=self.threshold, constants=others)
        yield FromIds(self.model, token=self.token, threshold=self.threshold, constants=arguments)

    def constants(self, rows: int) -> dict[str, Tensor]:
        """The constants, for so many rows."""
        named = {name: getattr(self, f"constant_{name}") for name in self.constant_names}
        return named if rows == 1 else {k: v.expand(rows, *v.shape[1:]) for k, v in named.items()}

    def run(self, **arguments: Tensor) -> Tensor:
        """The logits asked for, of what the model returns for some arguments."""
        rows = len(next(iter(arguments.values())))
        model = self.model if rows == 1 else _for_batches(self.model)
        if "use_cache" in inspect.signature(model.forward).parameters:
            return self.choose(model(**arguments, use_cache=False))
        return self.choose(model(**arguments))

    def choose(self, output: Any) -> Tensor:
        """The logits asked for, of what the model returned."""
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise ModelError(f"{self.title} gives no logits: load it with a head that classifies")
        if logits.dim() == 3:
            if self.token is None:
                name, shape = self.title, list(logits.shape)
                raise ModelError(f"{name} gives logits {shape} for every token: choose one, as in load(.., token=1)")
            logits = logits[:, self.token]
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = torch.cat([logits - self.threshold, torch.zeros_like(logits)], dim=1)
        return logits


class FromIds(FromEmbeddings):
    """The model's own forward pass on ids that stay the same, with embeddings in the place of what its table gives."""

    def __init__(self, model: nn.Module, *, token: int | None, threshold: float, constants: Arguments) -> None:
        super().__init__(_same_weights(model), token=token, threshold=threshold, constants=constants)
        table: Any = self.model.get_input_embeddings
        table().register_forward_hook(_put_in_place)

    def forward(self, embeddings: Tensor) -> Tensor:
        waiting = [embeddings]
        token = _GIVEN.set(waiting)
        try:
            logits = self.run(**self.constants(len(embeddings)))
        finally:
            _GIVEN.reset(token)
        if waiting:
            raise ModelError(f"{self.title} does not look its words up in its table of embeddings")
        return logits


class FromPatches(FromEmbeddings):
    """Patches `[batch, n, channels * size * size]` of a picture -> logits, by putting the picture together again."""

    def __init__(
        self,
        model: nn.Module,
        *,
        channels: int,
        height: int,
        width: int,
        patch: tuple[int, int],
        threshold: float = 0.0,
    ) -> None:
        super().__init__(model, threshold=threshold)
        self.cut = Cut((channels, height, width), patch)

    def forward(self, patches: Tensor) -> Tensor:
        return self.choose(self.model(pixel_values=self.picture(patches)))

    def routes(self, arguments: Arguments) -> Iterator[FromEmbeddings]:
        """The picture goes in whole: there is one route."""
        yield self

    def picture(self, patches: Tensor) -> Tensor:
        """[batch, rows * columns, c p q] -> [batch, c, rows p, columns q]"""
        return self.cut.picture(patches)

    def patches(self, picture: Tensor) -> Tensor:
        """[c, rows p, columns q], with or without a leading 1 -> [1, rows * columns, c p q]"""
        return self.cut.patches(picture)


class WordTable(nn.Module):
    """ids `[batch, n]` -> word embeddings `[batch, n, d]`, by a model's own table."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, ids: Tensor) -> Tensor:
        found = self.table(ids)
        words: Tensor = found[0] if isinstance(found, tuple) else found  # with the scale of a quantised table
        return words


def _put_in_place(table: nn.Module, ids: Any, found: Any) -> Any:
    """A hook: the embeddings that wait, instead of what a table found."""
    waiting = _GIVEN.get()
    if waiting is None:
        return None
    if not waiting:
        raise ModelError("the model looks words up more than once: its embeddings cannot be replaced")
    given = waiting.pop().clone()  # a model may go on with it in place
    return (given, *found[1:]) if isinstance(found, tuple) else given


def _same_weights(model: nn.Module) -> nn.Module:
    """A copy of a model that shares its weights and buffers."""
    shared: dict[int, Any] = {id(x): x for x in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _for_batches(model: nn.Module) -> nn.Module:
    """A model that takes several rows: some ask for the id of padding then, though rows of one length have none."""
    config: Any = model.config
    if getattr(config, "pad_token_id", 0) is not None:
        return model
    model, config = copy.copy(model), copy.copy(config)
    config.pad_token_id = getattr(config, "eos_token_id", None) or 0
    model.config = config
    return model
