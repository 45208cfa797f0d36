"""A model folder from a stranger: nothing in it is run, nothing is allocated before it was checked, nothing hangs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import certiformer as cf
from certiformer.errors import CertiformerError, ModelError
from certiformer.models import load

BUNDLED = Path(cf.__file__).parent / "models" / "bundled" / "sst-1"
HUGE = 10**12


class Payload:
    """What an attacker pickles: unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a bundled model, to be spoilt."""
    return Path(shutil.copytree(BUNDLED, tmp_path / "model"))


def settings(folder: Path, **changed: Any) -> None:
    """Change some fields of config.json."""
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **changed}))


def test_the_payload_would_work(tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "run")))
    assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.bin", "model.pt", "model.pkl", "tokenizer.pkl"])
def test_pickles_are_not_opened(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).write_bytes(pickle.dumps(Payload(tmp_path / "run")))
    load(folder)
    assert not (tmp_path / "run").exists()


def test_a_pickle_in_the_place_of_the_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Payload(tmp_path / "run")))
    with pytest.raises(ModelError, match="safetensors"):
        load(folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "field",
    [
        "hidden_size",
        "intermediate_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "num_labels",
    ],
)
@pytest.mark.parametrize("value", [HUGE, -1, 1.5, "64", None, [64], True])
def test_sizes_that_no_model_has_are_refused_before_anything_is_built(field: str, value: Any, folder: Path) -> None:
    settings(folder, **{field: value})
    with pytest.raises(ModelError, match=field):
        load(folder)


def test_the_largest_sizes_allowed_cost_nothing_where_the_file_does_not_hold_them(folder: Path) -> None:
    """The weights of such a model would be petabytes: the file's own header is compared first."""
    settings(folder, hidden_size=100_000, intermediate_size=1_000_000, num_hidden_layers=1024, num_attention_heads=8)
    with pytest.raises(ModelError, match=r"expected (the .* tensors|shape)"):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-6, "1e-12"])
def test_a_layer_norm_eps_that_is_none_is_refused(value: Any, folder: Path) -> None:
    settings(folder, layer_norm_eps=value)
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "\x00", "null", "[]", '{"hidden_size": 1e999}'])
def test_a_config_that_is_no_object_is_refused(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][0, 0] = value
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"infinity or NaN in classifier\.weight"):
        load(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.update({"classifier.weight": w["classifier.weight"].T.contiguous()}),
        lambda w: w.update({"classifier.weight": w["classifier.weight"].to(torch.int32)}),
        lambda w: w.update({"classifier.weight": torch.zeros(0)}),
        lambda w: w.update({"../../outside": torch.zeros(1)}),
        lambda w: w.pop("classifier.bias"),
    ],
    ids=["shape", "type", "empty", "name", "missing"],
)
def test_weights_of_another_shape_type_or_name_are_refused(spoil: Any, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    spoil(weights)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(folder)
    assert not (folder.parent.parent / "outside").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 7 + b"\x7f{}", b"\x02\0\0\0\0\0\0\0{", b"\x08\0\0\0\0\0\0\0[[[[[[[["],
    ids=["empty", "a header of exabytes", "cut", "no object"],
)
def test_a_header_that_lies_is_refused(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="truncated or foreign"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
@pytest.mark.parametrize("kind", ["device", "pipe", "circle", "folder"])
def test_what_is_no_file_is_not_read(kind: str, name: str, folder: Path) -> None:
    """A device without end, a pipe that nobody writes to, a link to itself."""
    (folder / name).unlink()
    if kind == "device":
        (folder / name).symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "circle":
        (folder / name).symlink_to(folder / name)
    else:
        (folder / name).mkdir()
    with pytest.raises(CertiformerError, match=name):
        load(folder)


def test_a_link_to_a_file_of_this_machine_does_not_tell_what_is_in_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a password that must not be shown\n" * 3)
    for name in ("config.json", "model.safetensors"):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "secret")
        with pytest.raises(ModelError) as refused:
            load(folder)
        assert "password" not in str(refused.value)
        (folder / name).unlink()
        (folder / name).write_bytes(kept)


@pytest.mark.parametrize("text", ["a\n" * 100_000, "\n".join(map(str, range(200_000))) + "\n199999", "a" * 10**7])
def test_a_vocabulary_that_repeats_or_never_ends_is_refused_soon(text: str, folder: Path) -> None:
    (folder / "vocab.txt").write_text(text)
    began = time.process_time()
    with pytest.raises(ModelError, match=r"vocab\.txt"):
        load(folder)
    assert time.process_time() - began < 10  # going through all pairs would take minutes


def test_a_name_that_leads_elsewhere_opens_no_bundled_model() -> None:
    for name in ("sst-1/../sst-2", "../bundled/sst-1", "sst-1\0", "", "bundled/sst-1"):
        with pytest.raises(CertiformerError):
            load(name)
