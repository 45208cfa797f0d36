"""Model folders: config.json, model.safetensors and vocab.txt, checked before anything is built."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from .. import strict
from ..errors import ModelError
from .model import Model
from .network import Classifier, Config, Embeddings, expected_shapes, from_file_names, to_file_names
from .tokenizer import CLS, PAD, SEP, SPECIAL_TOKENS, WordTokenizer

CONFIG, TENSORS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"
_REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
)
_OPTIONAL = ("layer_norm_eps", "type_vocab_size")
_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
_IGNORED = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")  # buffers of older Hugging Face versions
_HUGGING_FACE = (  # fields of config.json that say nothing to a reader of `Model.facts`
    *("architectures", "model_type", "hidden_dropout_prob", "attention_probs_dropout_prob", "id2label", "label2id"),
    *("pad_token_id", "dtype", "torch_dtype", "transformers_version", "initializer_range", "use_cache"),
    *("position_embedding_type", "classifier_dropout"),
)


def read_folder(path: str | os.PathLike[str], *, name: str | None = None) -> Model:
    """Open a model folder written here or by Hugging Face (BERT with a word-level vocabulary)."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"no model folder at {folder}: expected a folder holding {CONFIG}, {TENSORS} and {VOCABULARY}")
    for file in (CONFIG, TENSORS, VOCABULARY):
        if not (folder / file).is_file():
            raise ModelError(f"{folder}: expected {CONFIG}, {TENSORS} and {VOCABULARY}, found no {file}")
    written = _read_json(folder / CONFIG)
    config = config_from_json(written, where=str(folder / CONFIG))
    vocabulary = read_vocabulary(folder / VOCABULARY)
    if len(vocabulary) != config.vocab_size:
        raise ModelError(
            f"{folder / VOCABULARY}: expected {config.vocab_size} tokens (vocab_size of {CONFIG}), "
            f"found {len(vocabulary)}"
        )
    tensors = _read_tensors(folder / TENSORS, config)
    embed, classifier = from_file_names(config, tensors)
    try:
        tokenizer = WordTokenizer(vocabulary, max_length=config.max_position_embeddings)
    except ModelError as error:
        raise ModelError(f"{folder / VOCABULARY}: {error}") from None
    facts = {k: v for k, v in written.items() if k not in _HUGGING_FACE}
    facts |= {
        "layer_norm": config.layer_norm,
        "num_labels": config.num_labels,
        "parameters": sum(t.numel() for t in tensors.values()),
        "bytes": sum((folder / file).stat().st_size for file in (CONFIG, TENSORS, VOCABULARY)),
    }
    return Model(
        module=classifier,
        embed=embed,
        tokenizer=tokenizer,
        labels=config.labels,
        name=name or folder.resolve().name,
        special=frozenset(vocabulary.index(token) for token in (PAD, CLS, SEP)),
        max_length=config.max_position_embeddings,
        vocabulary=vocabulary,
        facts=facts,
    )


def write_folder(
    path: str | os.PathLike[str],
    *,
    config: Config,
    embed: Embeddings,
    classifier: Classifier,
    vocabulary: Sequence[str],
    facts: Mapping[str, Any] | None = None,
    card: str | None = None,
    dtype: Literal["float32", "float16"] = "float32",
) -> Path:
    """Write a model folder; each file appears whole or not at all. `card` becomes README.md."""
    if len(vocabulary) != config.vocab_size:
        raise ModelError(f"the vocabulary has {len(vocabulary)} tokens but vocab_size is {config.vocab_size}")
    if any("\n" in token or "\r" in token for token in vocabulary):
        raise ModelError("a token of the vocabulary holds a line break, which vocab.txt cannot express")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    kind = torch.float16 if dtype == "float16" else torch.float32
    tensors = {k: v.detach().to("cpu", kind).contiguous() for k, v in to_file_names(embed, classifier).items()}
    for tensor_name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ModelError(f"{tensor_name} holds values that are not finite in {dtype}: the folder was not written")
    write_bytes(folder / VOCABULARY, "".join(f"{token}\n" for token in vocabulary).encode())
    write_bytes(folder / TENSORS, save(tensors, metadata={"format": "pt"}))
    written = config_to_json(config) | dict(facts or {})
    write_bytes(folder / CONFIG, (json.dumps(written, indent=1, ensure_ascii=False) + "\n").encode())
    if card is not None:
        write_bytes(folder / "README.md", card.encode())
    return folder


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that is either the old one or the whole new one, even when killed half way."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def config_to_json(config: Config) -> dict[str, Any]:
    """The content of config.json, readable by Hugging Face when the LayerNorm is the standard one."""
    own = {f.name: getattr(config, f.name) for f in fields(Config) if f.name not in ("labels", "dropout", "num_labels")}
    return {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        **own,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "pad_token_id": 0,
        "num_labels": config.num_labels,
        "id2label": {str(i): label for i, label in enumerate(config.labels)},
        "label2id": {label: i for i, label in enumerate(config.labels)},
    }


def config_from_json(written: Mapping[str, Any], *, where: str) -> Config:
    """Check the content of config.json. A folder without `layer_norm` was written elsewhere: standard."""
    if written.get("model_type", "bert") != "bert":
        raise ModelError(f"{where}: expected model_type 'bert', found {written['model_type']!r}")
    if written.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(f"{where}: expected absolute positions, found {written['position_embedding_type']!r}")
    missing = [key for key in _REQUIRED if key not in written]
    if missing:
        raise ModelError(f"{where}: expected the fields {', '.join(_REQUIRED)}; {', '.join(missing)} not found")
    labels = _labels(written, where)
    try:
        return Config(
            **{key: written[key] for key in (*_REQUIRED, *_OPTIONAL) if key in written},
            layer_norm=written.get("layer_norm", "standard"),
            dropout=written.get("hidden_dropout_prob", 0.1),
            num_labels=written.get("num_labels", len(labels)),
            labels=labels,
        )
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None


def _labels(written: Mapping[str, Any], where: str) -> tuple[str, ...]:
    names = written.get("id2label")
    if names is None:
        count = written.get("num_labels", 2)
        return tuple(f"LABEL_{i}" for i in range(count if isinstance(count, int) and 0 < count <= 10**5 else 2))
    if not isinstance(names, dict) or set(names) != {str(i) for i in range(len(names))}:
        raise ModelError(f"{where}: id2label must map '0', '1', ... to label names, found {names!r:.80}")
    return tuple(str(names[str(i)]) for i in range(len(names)))


def read_vocabulary(path: Path) -> tuple[str, ...]:
    """One token a line; the line number is the id."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: expected UTF-8 text, one token a line, found other bytes at {error.start}") from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if len(set(lines)) != len(lines):
        seen: set[str] = set()
        again = next(i for i, line in enumerate(lines) if line in seen or seen.add(line))  # type: ignore[func-returns-value]
        raise ModelError(f"{path}: expected each token once, found {lines[again]!r} again at line {again + 1}")
    pieces = sum(line.startswith("##") and len(line) > 2 for line in lines)
    if pieces > len(lines) // 100 + 1:
        raise ModelError(
            f"{path}: expected whole words, found {pieces} word pieces ('##...'): this is a WordPiece vocabulary, "
            f"which this folder format does not cover"
        )
    missing = [token for token in SPECIAL_TOKENS if token not in lines]
    if missing:
        raise ModelError(f"{path}: expected {', '.join(SPECIAL_TOKENS)}; {', '.join(missing)} not found")
    return tuple(lines)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = strict.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path}: expected JSON, found something else: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected a JSON object, found a {type(content).__name__}")
    return content


def _read_tensors(path: Path, config: Config) -> dict[str, Tensor]:
    """The tensors in float32, after their names, shapes, types and values have been checked."""
    expected = expected_shapes(config)
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            found = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
            _check_header(
                path, expected, {key: (t.get_dtype(), tuple(t.get_shape())) for key, t in found.items()}, config
            )
            for key in expected:
                tensors[key] = file.get_tensor(key).to(torch.float32)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path}: expected a whole safetensors file, found a truncated or foreign one ({error})"
        ) from None
    for key, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ModelError(f"{path}: expected finite values, found infinity or NaN in {key}")
    return tensors


def _check_header(
    path: Path,
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[str, tuple[int, ...]]],
    config: Config,
) -> None:
    missing = [key for key in expected if key not in found]
    if missing:
        raise ModelError(
            f"{path}: expected the {len(expected)} tensors of a {config.num_hidden_layers}-layer "
            f"BertForSequenceClassification, {len(missing)} not found, such as {missing[0]}; found {len(found)}"
            + (f", such as {next(iter(found))}" if found else "")
        )
    for key, (kind, shape) in found.items():
        if key not in expected:
            unused_norm = config.layer_norm == "none" and "LayerNorm." in key
            if key not in _IGNORED and not unused_norm:
                raise ModelError(
                    f"{path}: expected only the tensors of a {config.num_hidden_layers}-layer "
                    f"BertForSequenceClassification, found {key} too"
                )
        elif shape != expected[key]:
            raise ModelError(f"{path}: {key}: expected shape {list(expected[key])} by {CONFIG}, found {list(shape)}")
        elif kind not in _FLOATS:
            raise ModelError(f"{path}: {key}: expected one of {', '.join(_FLOATS)}, found {kind}")
