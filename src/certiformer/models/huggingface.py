"""Hugging Face models and other modules as they are: what is perturbed, and how a text gets there.

A text model is perturbed at its word embeddings, given to it as `inputs_embeds`: positions and token types are added
inside, as constants, so a radius means the same as for a model whose summed embeddings are perturbed. An image model is
perturbed at its patches: position k is the k-th patch of the picture, its pixels in one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import strict
from ..errors import CertiformerError, InputError, ModelError
from .faithful import first_line
from .model import Model
from .subwords import NO_CODE, PretrainedTokenizer, read_tokenizer, special_ids, vocabulary
from .wrapped import FromEmbeddings, FromPatches, WordTable

_LONGEST = 10**6  # tokenisers write "no limit" as a huge number


def from_pretrained(
    model: nn.Module,
    *,
    tokenizer: Any = None,
    token: int | None = None,
    threshold: float = 0.0,
    name: str | None = None,
) -> Model:
    """A Hugging Face model for text or images, perturbed at its word embeddings or patches."""
    config: Any = model.config
    name = name or (Path(str(config.name_or_path)).name if getattr(config, "name_or_path", "") else "model")
    labels = _labels(config, threshold)
    if getattr(model, "main_input_name", "input_ids") == "pixel_values":
        return _image_model(model, config, labels=labels, name=name, threshold=threshold)
    if getattr(model, "main_input_name", "input_ids") != "input_ids":
        raise ModelError(f"{type(model).__name__} takes {model.main_input_name}, neither text nor pictures")
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{type(model).__name__} has an encoder and a decoder: load the encoder with a head instead")
    embed = _table(model)
    longest = _longest(config, tokenizer, embed)
    return Model(
        module=FromEmbeddings(model, token=token, threshold=threshold),
        embed=WordTable(embed),
        tokenizer=None if tokenizer is None else PretrainedTokenizer(tokenizer, max_length=longest),
        labels=labels,
        name=name,
        special=frozenset() if tokenizer is None else special_ids(tokenizer),
        max_length=longest,
        vocabulary=() if tokenizer is None else vocabulary(tokenizer, len(cast(Tensor, embed.weight))),
        facts={"architecture": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())},
    )


def _table(model: Any) -> nn.Module:
    """Where a model looks its words up."""
    try:
        found = model.get_input_embeddings()
    except Exception as error:  # what a model may raise has no list
        raise ModelError(f"{type(model).__name__} has no table of word embeddings: {first_line(error)}") from error
    if not isinstance(found, nn.Module) or not isinstance(getattr(found, "weight", None), Tensor):
        raise ModelError(f"{type(model).__name__} has no table of word embeddings: give cf.load a module on embeddings")
    return found


def _image_model(model: nn.Module, config: Any, *, labels: tuple[str, ...], name: str, threshold: float) -> Model:
    if getattr(config, "num_frames", None):
        raise ModelError(f"{type(model).__name__} takes videos, not pictures: give cf.load a module on embeddings")
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if size is None or patch is None:
        raise ModelError(
            f"{type(model).__name__} does not say image_size and patch_size: give cf.load a module from pictures to "
            "logits, with shape=(channels, height, width)"
        )
    height, width = (size, size) if isinstance(size, int) else size
    pair = (patch, patch) if isinstance(patch, int) else (int(patch[0]), int(patch[1]))
    channels = int(getattr(config, "num_channels", 3))
    module = FromPatches(model, channels=channels, height=height, width=width, patch=pair, threshold=threshold)
    return Model(
        module=module,
        labels=labels,
        name=name,
        facts={"architecture": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())},
        read=module.patches,
    )


def _labels(config: Any, threshold: float) -> tuple[str, ...]:
    names = getattr(config, "id2label", None) or {}
    labels = tuple(str(names[i]) for i in sorted(names))
    return (f"above {threshold:g}", f"below {threshold:g}") if len(labels) == 1 else labels


def _longest(config: Any, tokenizer: Any, embed: nn.Module) -> int | None:
    """The most tokens a model takes. Position tables that start behind the padding id hold that many fewer."""
    sizes = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions")]
    known = [s for s in sizes if isinstance(s, int) and s > 0]
    limit = min(known) if known else math.inf
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "longformer"):
        limit -= int(getattr(config, "pad_token_id", 1) or 0) + 1
    limit = min(limit, getattr(tokenizer, "model_max_length", None) or math.inf)
    return int(limit) if limit < _LONGEST else None


def from_module(
    module: nn.Module,
    *,
    embeddings: Callable[[Tensor], Tensor] | nn.Module | None = None,
    num_labels: int | None = None,
    tokenizer: Any = None,
    labels: Sequence[str] | None = None,
    name: str | None = None,
) -> Model:
    """Any module that maps embeddings `[batch, n, d]` to logits `[batch, classes]`."""
    if labels is not None and num_labels is not None and len(labels) != num_labels:
        raise InputError(f"num_labels={num_labels} but {len(labels)} labels were given")
    if labels is None:
        labels = tuple(f"LABEL_{i}" for i in range(num_labels or 0))
    if tokenizer is not None and not hasattr(tokenizer, "encode"):
        raise InputError(f"tokenizer: expected a tokenizer, found a {type(tokenizer).__name__}")
    pretrained = hasattr(tokenizer, "all_special_ids")
    return Model(
        module=module.eval(),
        embed=embeddings,
        tokenizer=PretrainedTokenizer(tokenizer) if pretrained else tokenizer,
        labels=tuple(labels),
        name=name or type(module).__name__,
        special=special_ids(tokenizer) if pretrained else frozenset(),
        vocabulary=vocabulary(tokenizer, len(tokenizer)) if pretrained else (),
    )


def is_pipeline(source: object) -> bool:
    """Whether an object is a pipeline of Hugging Face, told without importing transformers."""
    return any(
        base.__module__.startswith("transformers.") and base.__name__ == "Pipeline" for base in type(source).__mro__
    )


def is_pretrained(model: object) -> bool:
    """Whether an object is a Hugging Face model, told without importing transformers."""
    return isinstance(model, nn.Module) and any(
        base.__module__.startswith("transformers.") and base.__name__ == "PreTrainedModel"
        for base in type(model).__mro__
    )


def needs_transformers(folder: Path) -> bool:
    """Whether a folder is one for `transformers`: another model type, or a tokenizer other than whole words."""
    if not (folder / "config.json").is_file():  # nor a pipe or a device, which may never end
        return False
    try:
        config = strict.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict) or "layer_norm" in config:  # written by certiformer
        return False
    if config.get("model_type", "bert") != "bert" or config.get("position_embedding_type", "absolute") != "absolute":
        return True
    if not (folder / "vocab.txt").is_file() and (folder / "model.safetensors").is_file():
        return True
    return any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json"))


def read_pretrained(
    source: str | Path, *, tokenizer: Any = None, token: int | None = None, threshold: float = 0.0, local: bool = True
) -> Model:
    """Open a folder saved by `save_pretrained` (or, not local, a name on the hub), with its tokenizer if it has one."""
    try:
        import transformers
    except ImportError:
        raise ModelError(f"{source} needs the package transformers: pip install 'certiformer[hf]'") from None
    try:
        with without_bars():
            config = transformers.AutoConfig.from_pretrained(source, local_files_only=local, **NO_CODE)
            kind = _architecture(transformers, config, str(source))
            _check_size(kind, config, Path(source))
            options = {"local_files_only": local, "use_safetensors": True, "output_loading_info": True, **NO_CODE}
            model, about = kind.from_pretrained(source, dtype=torch.float32, **options)
    except CertiformerError:
        raise
    except Exception as error:  # what transformers may raise has no list
        raise ModelError(f"{source}: transformers could not open it: {first_line(error)}") from error
    _check_weights(model, about, str(source))
    if tokenizer is None and getattr(model, "main_input_name", "input_ids") == "input_ids":
        tokenizer = read_tokenizer(source, local=local)
    return from_pretrained(model, tokenizer=tokenizer, token=token, threshold=threshold, name=Path(source).name)


@contextmanager
def without_bars() -> Iterator[None]:
    """Without the progress bars of transformers, which would print a line on every command."""
    import transformers

    logging: Any = transformers.logging
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _check_size(kind: Any, config: Any, folder: Path) -> None:
    """The files can hold as many weights as the config asks for: checked before a byte is taken for them."""
    held = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if held:
        with torch.device("meta"):
            wanted = sum(parameter.numel() for parameter in kind(config).parameters())
        if wanted > held:  # a weight takes a byte or more
            raise ModelError(f"{folder}: config.json asks for {wanted:,} weights, the files have {held:,} bytes")


def _check_weights(model: nn.Module, about: dict[str, Any], where: str) -> None:
    """Every weight comes from the file (a head that is not there would be random numbers), and all are finite."""
    missing = sorted(str(name) for name in about.get("missing_keys", ()))
    if missing:
        raise ModelError(f"{where}: expected all weights of the model, {len(missing)} not found, such as {missing[0]}")
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ModelError(f"{where}: expected finite values, found infinity or NaN in {name}")


def _architecture(transformers: Any, config: Any, where: str) -> Any:
    names = list(getattr(config, "architectures", None) or [])
    fitting = [n for n in names if n.endswith(("Classification", "MultipleChoice")) and hasattr(transformers, n)]
    if not fitting:
        raise ModelError(
            f"{where}: expected a model that classifies sequences, tokens or images, found "
            f"{', '.join(names) or 'none'}; put a head on it and give cf.load the module"
        )
    return getattr(transformers, fitting[0])
