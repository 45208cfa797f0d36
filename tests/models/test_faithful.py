"""What is proved is about the function that a user calls: the model's own forward pass on ids, texts and pictures."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.models.wrapped import FromPatches
from certiformer.questions.inputs import Prepared, prepare

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()

import tiny  # noqa: E402

PLAIN, PADDED, MASKED = [5, 7, 11, 30, 4], [5, 7, 1, 30, 4], [5, 3, 11, 30, 1]  # padding is 1, a mask 3
TEXTS = "ForSequenceClassification"
FEW = ("Esm", "Roberta", "MPNet", "XLM", "IBert", "Llama", "CTRL", "Bert")


def by_ids(model: Any, ids: list[int]) -> Tensor:
    """The logits of the model's own forward pass, in float64, without this package."""
    with torch.no_grad():
        found: Tensor = model(input_ids=torch.tensor([ids])).logits
    return found


def same(prepared: Prepared, expected: Tensor) -> None:
    torch.testing.assert_close(prepared.logits, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert prepared.label == int(expected.argmax())


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("ids", [PLAIN, PADDED, MASKED], ids=["plain", "padded", "masked"])
def test_logits_are_those_of_the_models_own_forward_pass(name: str, ids: list[int]) -> None:
    model = tiny.build(name + TEXTS)
    prepared = prepare(cf.load(model), ids)
    same(prepared, by_ids(model.double(), ids))


@pytest.mark.parametrize("name", ["Esm", "Roberta", "Llama"])
def test_bounds_hold_for_embeddings_moved_inside_the_models_own_forward_pass(name: str) -> None:
    model = tiny.build(name + TEXTS)
    found = cf.bounds(cf.load(model), PADDED, eps=0.01, positions=[[1], [4]], method="backward")
    model = model.double()
    table, label = model.get_input_embeddings(), found.label
    generator = torch.Generator().manual_seed(0)
    for k, position in enumerate((1, 4)):
        for _ in range(20):
            move = torch.randn(8, generator=generator, dtype=torch.float64)
            move = 0.01 * move / move.norm()

            def moved(module: nn.Module, ids: Any, out: Any, move: Tensor = move, position: int = position) -> Tensor:
                return torch.cat([out[:, :position], out[:, position : position + 1] + move, out[:, position + 1 :]], 1)

            handle = table.register_forward_hook(moved)
            logits = by_ids(model, PADDED)[0]
            handle.remove()
            others = torch.cat([logits[:label], logits[label + 1 :]])
            margins = logits[label] - others
            assert (margins >= found.lower[k]).all()
            assert (margins <= found.upper[k]).all()


@pytest.mark.parametrize("ids", [PLAIN, PADDED], ids=["plain", "padded"])
def test_attacks_find_what_the_models_own_forward_pass_does(ids: list[int]) -> None:
    model = tiny.build("Esm" + TEXTS, num_hidden_layers=1)
    opened = replace(cf.load(model), vocabulary=tuple(f"w{i}" for i in range(40)))
    proved = cf.radius(opened, ids, positions=[[1], [0, 1, 2, 3, 4]], method="backward-forward", tolerance=0.2)
    attacked = cf.attack(opened, ids, positions=[[1], [0, 1, 2, 3, 4]], restarts=1)
    assert attacked.points[1] is not None
    model = model.double()
    table = model.get_input_embeddings()
    for radius, size, point, flipped in zip(
        proved.radii, attacked.radii, attacked.points, attacked.flipped, strict=True
    ):
        assert radius <= size
        if point is None:
            continue
        handle = table.register_forward_hook(lambda module, given, out, point=point: point)
        assert int(by_ids(model, ids).argmax()) == flipped != proved.label
        handle.remove()
    words = cf.attack(opened, ids, positions=[[1], [3]], attack_method="enumeration")
    for position, word, flipped in zip((1, 3), words.words, words.flipped, strict=True):
        if word is not None:
            changed = [int(word[1:]) if i == position else own for i, own in enumerate(ids)]
            assert int(by_ids(model, changed).argmax()) == flipped != words.label


def test_a_model_without_padding_is_attacked_in_batches_and_read_alone() -> None:
    model = tiny.build("GPT2" + TEXTS, pad_token_id=None, n_layer=1)
    ids = [5, 7, 11, 30, 2]  # ends with the end of a text, which batches take for padding
    proved = cf.radius(cf.load(model), ids, method="backward-forward", tolerance=0.2)
    attacked = cf.attack(cf.load(model), ids, restarts=1)
    assert model.config.pad_token_id is None
    assert proved.label == int(by_ids(model.double(), ids).argmax())
    assert all(radius <= size for radius, size in zip(proved.radii, attacked.radii, strict=True))


def test_inputs_with_other_constants_share_no_graph() -> None:
    model = tiny.build("Roberta" + TEXTS)
    how: Any = {"positions": [[1]], "method": "backward-forward", "relaxation": "paper", "tolerance": 0.3}
    together = cf.radii(cf.load(model), [PLAIN, PADDED, MASKED], **how)
    alone = [cf.radius(cf.load(model), ids, **how) for ids in (PLAIN, PADDED, MASKED)]
    assert [r.radii for r in together] == [r.radii for r in alone]
    assert len({r.radii for r in alone}) == 3  # a graph of another's constants would be seen
    assert [r.label for r in together] == [int(by_ids(model.double(), ids).argmax()) for ids in (PLAIN, PADDED, MASKED)]


def typed_tokenizer() -> Any:
    """A tokenizer whose token types are not all 0, as those of XLNet."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "dull", "great"]

    class Typed(transformers.BertTokenizer):  # type: ignore[misc, name-defined]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            coded = super().__call__(*args, **kwargs)
            coded["token_type_ids"] = [k % 2 for k in range(len(coded["input_ids"]))]
            return coded

    return Typed(vocab={word: i for i, word in enumerate(words)}, do_lower_case=True)


def test_what_a_tokenizer_returns_besides_ids_goes_in() -> None:
    model, tokenizer = tiny.build("Bert" + TEXTS), typed_tokenizer()
    text = "a great film"
    prepared = prepare(cf.load(model, tokenizer=tokenizer), text)
    coded = {k: torch.tensor([v]) for k, v in tokenizer(text).items()}
    with torch.no_grad():
        expected = model.double()(**coded).logits
        plain = model(input_ids=coded["input_ids"]).logits
    same(prepared, expected)
    assert (expected - plain).abs().max() > 0.01


def test_a_model_that_does_something_else_with_embeddings_is_refused() -> None:
    class Twice(transformers.BertForSequenceClassification):  # type: ignore[misc, name-defined]
        def forward(self, input_ids: Any = None, inputs_embeds: Any = None) -> Any:  # type: ignore[override]
            if input_ids is not None:
                self.bert.embeddings.word_embeddings(input_ids)
                inputs_embeds = 2 * self.bert.embeddings.word_embeddings(input_ids)
            return super().forward(inputs_embeds=inputs_embeds)

    model = tiny.randomized(Twice(tiny.build("Bert" + TEXTS).config))
    with pytest.raises(cf.ModelError, match=r"Twice: its own forward pass on input_ids gives logits \[.*\], the same"):
        prepare(cf.load(model), PLAIN)
    prepare(cf.load(model), torch.randn(4, 8))  # embeddings are what they are


def test_a_difference_below_single_precision_needs_single_precision_inside() -> None:
    class Shifted(transformers.BertForSequenceClassification):  # type: ignore[misc, name-defined]
        def forward(self, input_ids: Any = None, inputs_embeds: Any = None) -> Any:  # type: ignore[override]
            output = super().forward(input_ids=input_ids, inputs_embeds=inputs_embeds)
            output.logits = output.logits * (1 if input_ids is None else 1 + 1e-7)
            return output

    class Single(Shifted):
        def forward(self, **arguments: Any) -> Any:
            output = super().forward(**arguments)
            output.logits = output.logits.float().to(output.logits.dtype)
            return output

    config = tiny.build("Bert" + TEXTS).config
    assert prepare(cf.load(tiny.randomized(Single(config))), PLAIN).constants == ()
    assert prepare(cf.load(tiny.randomized(Shifted(config))), PLAIN).constants != ()  # by its ids it is exact


class InPlace(nn.Module):
    """Changes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x *= 2
        logits: Tensor = self.head(x.mean(dim=1))
        return logits


def test_a_module_that_changes_its_input_is_refused() -> None:
    with pytest.raises(cf.ModelError, match="changes its input in place"):
        cf.bounds(cf.load(InPlace(), num_labels=2), torch.randn(4, 3), eps=0.1)


def test_single_precision_is_decided_in_double() -> None:
    model = tiny.build("Esm" + TEXTS)
    prepared = prepare(cf.load(model), PLAIN, dtype=torch.float32)
    expected = by_ids(model, PLAIN)
    torch.testing.assert_close(prepared.logits, expected, rtol=1e-4, atol=1e-4)


def test_a_picture_goes_the_models_own_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build("ViTForImageClassification")
    picture = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model.double()(pixel_values=picture[None].double()).logits
    same(prepare(cf.load(model), picture), expected)
    right = FromPatches.picture
    monkeypatch.setattr(FromPatches, "picture", lambda self, patches: right(self, patches).transpose(-1, -2))
    with pytest.raises(cf.ModelError, match="own forward pass on pixel_values"):
        prepare(cf.load(model), picture)


@pytest.mark.slow
@pytest.mark.parametrize("name", tiny.names(TEXTS))
def test_no_class_is_answered_for_with_another_label(name: str) -> None:
    if not {"input_ids", "pixel_values"} & set(inspect.signature(getattr(transformers, name).forward).parameters):
        pytest.skip("takes neither ids nor pixels")
    try:
        model = tiny.build(name)
    except Exception as error:
        pytest.skip(f"not built small: {error!r:.100}")
    answered = 0
    for ids in (PLAIN, PADDED, MASKED):
        try:
            found = cf.bounds(cf.load(model), ids, eps=1e-3, positions=[[1]], method="ibp")
        except cf.CertiformerError:
            continue
        answered += 1
        model = model.double()
        expected = by_ids(model, ids)
        model = model.float()
        assert found.label == int(expected.argmax())
        margins = expected[0, found.label] - torch.cat([expected[0, : found.label], expected[0, found.label + 1 :]])
        slack = 1e-5 * float(expected.abs().max())
        assert (margins >= found.lower[0] - slack).all()
        assert (margins <= found.upper[0] + slack).all()
    if not answered:
        pytest.skip("says why it cannot be answered")
