"""Embeddings without a part that all words share, or all words of a place.

Such a part says nothing of a word, and makes embeddings longer: a smaller share of the length then leads from one word
to another. The penalty for certificates makes it grow, since it makes the keys of attention alike.
"""

from __future__ import annotations

import torch

from ..models.network import Embeddings
from .batches import Batch


@torch.no_grad()
def centre(embed: Embeddings, batch: Batch, share: float) -> None:
    """Take a share of the mean embedding of a batch's words at each place away from the embedding of the place.

    Texts that have no word there count as 0, so that one long text does not move the places that it alone has.
    """
    words = embed(batch.ids) * batch.words[:, :, None]  # [batch, n, d]
    embed.position_embeddings.weight[: words.shape[1]] -= share * words.mean(dim=0)
