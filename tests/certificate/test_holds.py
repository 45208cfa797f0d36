"""Certificates of all kinds are written, and the second program says that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checking import checked, checked_apart
from torch import Tensor, nn

import certiformer as cf
from certiformer.certificate import unpacked
from certiformer.errors import InputError, UnsupportedError
from certiformer.models import Config, Model, write_folder
from certiformer.models.network import Classifier, Embeddings
from conftest import REFERENCE, random_model
from spread import spread

SMALL, STANDARD = REFERENCE / "sst_1_small", REFERENCE / "sst_1_small_standard"
TWO, THREE = REFERENCE / "sst_2_tiny", REFERENCE / "sst_3_tiny"
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{i}" for i in range(16)))


def folder_of(path: Path, model: Model, **config: Any) -> Path:
    """A folder of a random model, and words to go with it."""
    assert isinstance(model.embed, Embeddings)
    assert isinstance(model.module, Classifier)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "max_position_embeddings": 12}
    made = Config(vocab_size=20, num_labels=3, labels=("a", "b", "c"), **{**sizes, **config})
    return write_folder(path, config=made, embed=model.embed, classifier=model.module, vocabulary=WORDS)


def test_a_certificate_of_a_folder_holds_and_is_of_that_folder_alone(tmp_path: Path) -> None:
    file = tmp_path / "it.cert"
    result = cf.certify(SMALL, "the film is lame", eps=0.05, positions=[2], certificate=file)
    assert result.status == "certified"
    assert result.certificate == str(file)
    code, line = checked_apart(file, SMALL)
    assert (code, "the graph is that of the folder" in line) == (0, True), line
    code, line = checked(file)
    assert (code, "the graph is the claim" in line) == (0, True), line
    assert checked_apart(file, STANDARD)[0] == 1
    words, numbers = unpacked(file.read_bytes())
    assert words["set"] == {"kind": "ball", "p": 2.0, "positions": [2]}
    assert 0 < float(numbers["claim.margin"]) <= result.margin
    assert torch.equal(numbers["set.radius"], torch.tensor([0.05], dtype=torch.float64))


KINDS: dict[str, tuple[Path, dict[str, Any]]] = {
    "l1": (SMALL, {"eps": 2.9, "norm": 1}),
    "linf, two words": (SMALL, {"eps": 0.03, "norm": "inf", "positions": "1+3"}),
    "l3, two words": (SMALL, {"eps": 0.04, "norm": 3, "positions": [[1, 2]]}),
    "l3, all words": (SMALL, {"eps": 0.04, "norm": 3, "positions": [[1, 2, 3, 4]]}),
    "steps": (TWO, {"eps": 0.3815, "positions": [2], "steps": 4, "splits": 1}),
    "pieces": (SMALL, {"eps": 0.0852, "norm": "inf", "positions": [1], "splits": 4}),
    "steps and pieces": (SMALL, {"eps": 0.641, "positions": [1], "steps": 3, "splits": 8}),
    "two layers": (TWO, {"eps": 0.02, "positions": [2]}),
    "three layers, anchors": (THREE, {"eps": 0.01, "positions": [2], "method": "backward-forward"}),
    "anchors and pieces": (TWO, {"eps": 0.37, "positions": [2], "splits": 3, "method": "backward-forward"}),
    "forward": (TWO, {"eps": 0.005, "positions": [2], "method": "forward"}),
    "with and without the shift": (SMALL, {"eps": 0.05, "positions": [2], "budget": "tight"}),
    "standard LayerNorm": (STANDARD, {"eps": 0.08, "positions": [2]}),
    "standard LayerNorm, l1, two words": (STANDARD, {"eps": 0.02, "norm": 1, "positions": "2+3"}),
    "standard LayerNorm, anchors": (STANDARD, {"eps": 0.01, "positions": [2], "method": "backward-forward"}),
    "standard LayerNorm, pieces": (STANDARD, {"eps": 0.0745, "positions": "2+3", "splits": 3}),
}


DEAR = ("l3, all words", "steps", "anchors and pieces")  # and each of their parts is in others


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow if k in DEAR else ()) for k in KINDS])
def test_what_was_proved_holds(kind: str, tmp_path: Path) -> None:
    folder, asked = KINDS[kind]
    result = cf.certify(
        folder, "the film is lame", **{"positions": [1], **asked}, attack=False, certificate=tmp_path / "it.cert"
    )
    assert result.status == "certified"
    code, line = checked(tmp_path / "it.cert", folder)
    assert code == 0, line
    words, _ = unpacked((tmp_path / "it.cert").read_bytes())
    assert ("pieces" in words["set"]) == ("splits" in asked and asked["splits"] > 1)
    assert len(words["cases"]) > 1 or "pieces" not in words["set"]
    assert bool(words["cases"][0]["anchors"]) == ("method" in asked)


@pytest.mark.parametrize(("layer_norm", "heads"), spread(["no_var", "standard", "none"], [1, 2]))
def test_the_graph_is_the_canonical_one(layer_norm: str, heads: int, tmp_path: Path) -> None:
    more = {"num_attention_heads": heads, "hidden_act": "gelu"}
    model = random_model(layers=2, layer_norm=layer_norm, **more)
    folder = folder_of(tmp_path / "m", model, num_hidden_layers=2, layer_norm=layer_norm, **more)
    result = cf.certify(folder, "word1 word9", eps=1e-4, positions=[2], attack=False, certificate=tmp_path / "it.cert")
    assert result.certificate is not None
    code, line = checked(tmp_path / "it.cert", folder)
    assert (code, "the graph is that of the folder" in line) == (0, True), line


@pytest.mark.parametrize("few", [True, False])
def test_substitutions_hold_as_points_and_as_a_hull(few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("certiformer.questions.verdict.MOST_COMBINATIONS", 0)
    asked = {"film": ["year", "comedy"], "lame": ["haphazard"]}
    result = cf.certify(SMALL, "the film is lame", substitutions=asked, certificate=tmp_path / "it.cert")
    assert result.status == "certified", result
    words, numbers = unpacked((tmp_path / "it.cert").read_bytes())
    assert words["set"] == {"kind": "points" if few else "hull", "positions": [2, 4]}
    assert numbers["set.counts"].tolist() == [3, 2]
    code, line = checked(tmp_path / "it.cert", SMALL)
    assert (code, "the graph is that of the folder" in line) == (0, True), line


class Gated(nn.Module):
    """A module of nobody's format."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((torch.sigmoid(self.first(x)) * torch.relu(self.second(x))).mean(dim=1))


def test_the_graph_of_any_other_module_is_the_claim(tmp_path: Path) -> None:
    torch.manual_seed(1)
    x = torch.randn(1, 3, 4)
    result = cf.certify(Gated(), x, eps=0.01, positions=[1], attack=False, certificate=tmp_path / "it.cert")
    assert result.status == "certified"
    words, _ = unpacked((tmp_path / "it.cert").read_bytes())
    assert words["model"]["kind"] == "graph"
    code, line = checked(tmp_path / "it.cert", SMALL)
    assert (code, "the graph is the claim" in line) == (0, True), line


def test_a_hugging_face_bert_holds(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.logging.set_verbosity_error()
    from tiny import randomized

    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.BertConfig(**sizes, vocab_size=40, max_position_embeddings=20, num_labels=3)
    randomized(transformers.BertForSequenceClassification(config)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer_config.json").unlink(missing_ok=True)
    model = cf.load(tmp_path / "bert")
    result = cf.certify(model, [2, 7, 11, 3], eps=1e-3, positions=[1], attack=False, certificate=tmp_path / "it.cert")
    assert result.status == "certified", result
    words, _ = unpacked((tmp_path / "it.cert").read_bytes())
    assert {"gelu", "normalize", "softmax_of_differences", "tanh"} <= {node["op"] for node in words["graph"]}
    code, line = checked(tmp_path / "it.cert")
    assert code == 0, line


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"relaxation": "paper"}, "relaxation='paper'"),
        ({"method": "ibp"}, "method='ibp'"),
        ({"dtype": "float32"}, "dtype='float32'"),
        ({"arithmetic": "float32"}, "arithmetic='float32'"),
    ],
)
def test_what_the_format_cannot_say_is_refused_before_the_work(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=why):
        cf.certify(SMALL, "the film", eps=0.01, positions=[1], certificate=tmp_path / "it.cert", **more)
    with pytest.raises(UnsupportedError, match=why):
        cf.radius(SMALL, "the film", positions=[1], certificates=tmp_path / "all", **more)
    assert list(tmp_path.iterdir()) == []


def test_an_op_without_a_place_is_refused_by_name(tmp_path: Path) -> None:
    class Cubed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * x * x).sum(dim=1)

    with pytest.raises(UnsupportedError, match="has no place for"):
        cf.certify(Cubed(), torch.ones(1, 2, 3), eps=0.01, positions=[1], certificate=tmp_path / "it.cert")


def test_one_file_is_for_one_set_and_nothing_is_written_of_what_is_not_proved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one set of positions, found 2"):
        cf.certify(SMALL, "the film", eps=0.01, certificate=tmp_path / "it.cert")
    with pytest.raises(InputError, match="no folder"):
        cf.certify(SMALL, "the film", eps=0.01, positions=[1], certificate=tmp_path / "nowhere" / "it.cert")
    result = cf.certify(SMALL, "the film", eps=3, positions=[1], certificate=tmp_path / "it.cert")
    assert (result.status, result.certificate) == ("refuted", None)
    assert list(tmp_path.iterdir()) == []
