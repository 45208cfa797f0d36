"""Embeddings without a part that all words share.

Such a part says nothing, and a LayerNorm has a bias for it; but it makes embeddings longer, so that a smaller share of
the length leads from one word to another. The penalty for certificates makes it grow, since it makes keys alike.
"""

from __future__ import annotations

import torch

from ..models.network import Embeddings
from .batches import Batch


@torch.no_grad()
def centre(embed: Embeddings, batch: Batch, share: float) -> None:
    """Take a share of the mean embedding of a batch's words away from all embeddings: from that of their type."""
    words = embed(batch.ids)[batch.words]  # [words, d]
    if len(words):
        embed.token_type_embeddings.weight[0] -= share * words.mean(dim=0)
