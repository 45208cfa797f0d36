"""The certified margin itself as a loss: what the engine proves at a radius, differentiated by the weights.

It costs as much as a proof, so it is for short texts. As numbers go it is the bound without terms for rounding: what a
trained model can be certified for is asked afterwards, as always.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..core.live import Live
from ..core.names import METHODS, BoundOptions, Method, one_of
from ..errors import InputError
from ..models.model import Model
from ..norms import norm_order
from .batches import Batch, some_words
from .movement import still


class CertifiedMargin:
    """`margin(embeddings, labels, positions, radius)` of a model in training, to be made large: `relu(1 - margin)`.

    A module that torch.export must capture is exported once for every length of text.
    """

    def __init__(self, model: Model | nn.Module, *, norm: float | str = 2, method: Method = "backward-forward") -> None:
        one_of("method", method, METHODS)
        self.module = model.module if isinstance(model, Model) else model
        if not isinstance(self.module, nn.Module):
            raise InputError(f"model={self.module!r}: expected a module, whose weights are to be trained")
        self.p, self.options = norm_order(norm), BoundOptions(method=method)
        self._live = Live(self.module)

    def __call__(
        self, embeddings: Tensor, labels: Tensor | Sequence[int], positions: Tensor, radius: float | Tensor
    ) -> Tensor:
        """What is proved of `logit[label] - logit[other]`, the least of all others, for each text `[batch]`.

        `embeddings` `[batch, n, d]` are texts of one length, without padding; `positions` `[batch]` or `[batch, k]` say
        which of their words move by up to `radius`, one number or one a text. -inf where nothing is proved.
        """
        if embeddings.dim() != 3:
            raise InputError(f"embeddings of shape {list(embeddings.shape)}: expected [batch, n, d]")
        batch, n = embeddings.shape[:2]
        places = positions.reshape(batch, -1) if positions.shape[:1] == (batch,) else positions
        if places.dim() != 2 or places.is_floating_point() or not bool(((places >= 0) & (places < n)).all()):
            raise InputError(
                f"positions of shape {list(positions.shape)}: expected {batch} rows of positions below {n}"
            )
        radii = torch.as_tensor(radius, dtype=embeddings.dtype, device=embeddings.device).expand(batch)
        if not bool((torch.isfinite(radii) & (radii >= 0)).all()):
            raise InputError(f"radius={radius!r}: expected finite numbers of 0 or more")
        wanted = [int(label) for label in labels]
        if len(wanted) != batch:
            raise InputError(f"{len(wanted)} labels for {batch} texts")
        where = [tuple(dict.fromkeys(row)) for row in places.tolist()]
        with still(self.module):
            return self._live.margins(embeddings, wanted, where, radii, self.p, self.options)

    def over(self, embeddings: Tensor, labels: Tensor | Sequence[int], moves: Tensor) -> Tensor:
        """The same where words are replaced, any number at once: each by any mixture of itself and its substitutes.

        `moves` `[batch, n, choices, d]` is what every choice changes of an embedding; the first is the word itself, 0.
        """
        batch, n, d = embeddings.shape
        if moves.dim() != 4 or (moves.shape[0], moves.shape[1], moves.shape[3]) != (batch, n, d):
            raise InputError(f"moves of shape {list(moves.shape)}: expected {[batch, n]}, choices, {d}")
        if bool(moves[:, :, 0].any()):
            raise InputError("moves: the first choice of every position is the word itself, a move of 0")
        with still(self.module):
            return self._live.margins_over(embeddings, [int(label) for label in labels], moves, self.options)


MOST = 16  # texts of a batch that are bounded


def of_short_texts(
    margin: CertifiedMargin, embeddings: Tensor, batch: Batch, *, share: float, words: int
) -> Tensor | None:
    """The mean of `softplus(-margin)` of some texts of a batch that have one length, of at most so many words; None
    where there is none. One word of each moves, by a share of the length of its embedding."""
    lengths = batch.mask.sum(dim=1)
    short = lengths[lengths <= words + 2]
    if len(short) == 0:
        return None
    n = int(short[torch.randint(len(short), ()).to(short.device)])
    rows = (lengths == n).nonzero()[:MOST, 0]
    part = Batch(batch.ids[rows, :n], batch.mask[rows, :n], batch.words[rows, :n], batch.labels[rows])
    places = some_words(part, 1)
    x = embeddings[rows, :n]
    moved = x.detach()[torch.arange(len(rows), device=x.device), places[:, 0]]  # [texts, d]
    length = torch.linalg.vector_norm(moved, ord=margin.p, dim=-1)
    found = margin(x, batch.labels[rows], places, share * length)
    found = found[torch.isfinite(found)]
    return nn.functional.softplus(-found).mean() if len(found) else None
