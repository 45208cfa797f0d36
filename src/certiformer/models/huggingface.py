"""Hugging Face models and other modules as they are: what is perturbed, and how a text gets there.

A text model is perturbed at its word embeddings, given to it as `inputs_embeds`: positions and token types are added
inside, as constants, so a radius means the same as for a model whose summed embeddings are perturbed. An image model is
perturbed at its patches: position k is the k-th patch of the picture, its pixels in one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import strict
from ..errors import InputError, ModelError
from .faithful import first_line
from .model import Encoding, Model
from .wrapped import FromEmbeddings, FromPatches, WordTable

MARKS = ("Ġ", "▁")  # how tokenisers write the space before a word
_OWN_FIELDS = ("input_ids", "special_tokens_mask", "offset_mapping")  # read here; a tokenizer's other fields go in
NO_CODE: dict[str, Any] = {"trust_remote_code": False}  # nor a question whether to run what a folder holds
_LONGEST = 10**6  # tokenisers write "no limit" as a huge number


class PretrainedTokenizer:
    """A Hugging Face tokenizer, with the characters each token came from."""

    def __init__(self, tokenizer: Any, *, max_length: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length

    def encode(self, text: str) -> Encoding:
        """The tokens of a text. A text longer than the model takes is an error, never cut silently."""
        fast = bool(getattr(self._tokenizer, "is_fast", False))
        coded = self._tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=fast)
        ids = tuple(int(i) for i in coded["input_ids"])
        if self._max_length is not None and len(ids) > self._max_length:
            raise InputError(
                f"the text has {len(ids)} tokens, this model takes at most {self._max_length}: shorten the text"
            )
        special = tuple(bool(s) for s in coded["special_tokens_mask"])
        spans = coded["offset_mapping"] if fast else self._search(text, ids, special)
        return Encoding(
            ids=ids,
            tokens=tuple(self.decode(list(ids))),
            spans=tuple(None if s else _trimmed(text, *span) for span, s in zip(spans, special, strict=True)),
            special=special,
            arguments=tuple((name, coded[name]) for name in coded if name not in _OWN_FIELDS),
        )

    def decode(self, ids: list[int]) -> list[str]:
        """The token of each id, without the marks that stand for a space."""
        names = self._tokenizer.convert_ids_to_tokens(ids)
        return [_plain(name) for name in names]

    def _search(self, text: str, ids: Sequence[int], special: Sequence[bool]) -> list[tuple[int, int]]:
        """Spans for a tokenizer that does not tell them: each token where it next occurs."""
        spans, at, lowered = [], 0, text.lower()
        for token, is_special in zip(self.decode(list(ids)), special, strict=True):
            written = token.removeprefix("##").lower()
            found = -1 if is_special else lowered.find(written, at)
            spans.append((at, at) if found < 0 else (found, found + len(written)))
            at = spans[-1][1]
        return spans


def _plain(name: str | None) -> str:
    stripped = (name or "").lstrip("".join(MARKS))
    return stripped or (name or "")


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    return start, end


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
        special=frozenset() if tokenizer is None else _special(tokenizer),
        max_length=longest,
        vocabulary=() if tokenizer is None else _vocabulary(tokenizer, len(cast(Tensor, embed.weight))),
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
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if size is None or patch is None:
        raise ModelError(f"{type(model).__name__} does not say image_size and patch_size: wrap it on patches yourself")
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


def _special(tokenizer: Any) -> frozenset[int]:
    unknown = getattr(tokenizer, "unk_token_id", None)
    ids = {int(i) for i in tokenizer.all_special_ids}
    ends = {getattr(tokenizer, f"{kind}_token_id", None) for kind in ("bos", "eos", "cls", "sep", "pad")}
    return frozenset(ids - ({unknown} - ends))


def _vocabulary(tokenizer: Any, size: int) -> tuple[str, ...]:
    names = {int(i): str(token) for token, i in tokenizer.get_vocab().items()}
    return tuple(_plain(names.get(i, f"<{i}>")) for i in range(size))


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
        special=_special(tokenizer) if pretrained else frozenset(),
        vocabulary=_vocabulary(tokenizer, len(tokenizer)) if pretrained else (),
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
    return any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json"))


def read_pretrained(
    source: str | Path, *, token: int | None = None, threshold: float = 0.0, local: bool = True
) -> Model:
    """Open a folder saved by `save_pretrained` (or, not local, a name on the hub), with its tokenizer if it has one."""
    try:
        import transformers
    except ImportError:
        raise ModelError(f"{source} needs the package transformers: pip install 'certiformer[hf]'") from None
    logging: Any = transformers.logging
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # it would print a line on every command
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=local, **NO_CODE)
        kind = _architecture(transformers, config, str(source))
        _check_size(kind, config, Path(source))
        options = {"local_files_only": local, "use_safetensors": True, "output_loading_info": True, **NO_CODE}
        model, about = kind.from_pretrained(source, dtype=torch.float32, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{source}: transformers could not open it: {first}") from error
    finally:
        if bars:
            logging.enable_progress_bar()
    _check_weights(model, about, str(source))
    tokenizer = None
    if getattr(model, "main_input_name", "input_ids") == "input_ids":
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=local, **NO_CODE)
        except (OSError, ValueError, KeyError, ImportError):
            tokenizer = None  # ids and embeddings can still be asked about; a text says what is missing
    return from_pretrained(model, tokenizer=tokenizer, token=token, threshold=threshold, name=Path(source).name)


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
