"""Every Hugging Face class of a kind, as small as its configuration allows, with random weights."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "emb_dim", "embedding_size", "d_embedding"), 8),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads", "encoder_attention_heads"), 2),
    **dict.fromkeys(("decoder_attention_heads", "num_key_value_heads", "num_experts", "num_local_experts"), 2),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner", "d_inner", "dff", "ffn_dim"), 12),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "d_ff"), 12),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 40),
    **dict.fromkeys(("head_dim", "d_kv", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts", "moe_topk", "n_group", "topk_group"), 1),
    **dict.fromkeys(("n_routed_experts", "n_shared_experts"), 2),
    "vocab_size": 40,
    "entity_vocab_size": 6,
    "entity_emb_size": 4,
    "max_2d_position_embeddings": 20,
    "num_labels": 3,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 2,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "mask_token_id": 3,
    "mask_index": 3,
    "layer_types": None,
    "mlp_layer_types": None,
}
# what a class needs besides, where the names above do not make it small or whole
MORE: dict[str, dict[str, Any]] = {
    "Esm": {"emb_layer_norm_before": True, "token_dropout": True},
    "Canine": {"num_hash_functions": 2, "num_hash_buckets": 20, "downsampling_rate": 2, "local_transformer_stride": 4},
    "Funnel": {"block_sizes": [1, 1], "d_head": 4},
    "GPTNeo": {"attention_types": [[["global", "local"], 1]]},
    "Lilt": {"hidden_size": 24, "channel_shrink_ratio": 4},
    "MobileBert": {"intra_bottleneck_size": 8, "true_hidden_size": 8},
    "Xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "SqueezeBert": {"q_groups": 1, "k_groups": 1, "v_groups": 1, "post_attention_groups": 1, "output_groups": 1},
}


def names(kind: str) -> list[str]:
    """The classes of a kind, such as "ForSequenceClassification"."""
    return sorted(n for n in dir(transformers) if n.endswith(kind) and not n.startswith(("Auto", "TF", "Flax")))


def build(name: str, **more: Any) -> Any:
    """A class by its name, made from a configuration of small sizes; raises what transformers raises."""
    kind = getattr(transformers, name)
    takes = inspect.signature(kind.config_class.__init__).parameters
    prefix = name.split("For")[0]
    chosen = {k: v for k, v in SIZES.items() if k in takes or k == "num_labels"}
    known = kind.config_class()
    left_out = {"Falcon": ("head_dim",), "Funnel": ("num_hidden_layers",)}.get(prefix, ())
    chosen |= {k: v for k, v in SIZES.items() if k not in chosen and hasattr(known, k) and v is not None}
    chosen = {k: v for k, v in chosen.items() if k not in left_out}
    config = kind.config_class(**{**chosen, **MORE.get(prefix, {}), **more})
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > 3_000_000:
        raise ValueError(f"{name} is not small: {size:,} parameters")
    torch.manual_seed(0)
    return randomized(kind(config))


def randomized(model: Any, scale: float = 0.25) -> Any:
    """Weights large enough for attention and activations to be far from linear."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in name.lower() or "ln_" in name
            parameter.copy_(1 + 0.1 * noise if norm and name.endswith("weight") else scale * noise)
    return model.eval()
