"""AdamW over length-bucketed batches, with evaluation, best weights, and resume after a kill."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Dataset, Example
from ..errors import InputError
from ..models.device import pick_device
from ..models.folder import write_folder
from ..models.model import Model
from ..models.network import Classifier, Embeddings, build
from ..recipe import Config, Recipe
from . import checkpoint
from .batches import Batch, Encoded, accuracy, batches, encode, epoch_order
from .card import model_card
from .movement import movement
from .rising import FULL, halvings, weight
from .start import Weights, begin, may_begin, not_collapsed, weights_of


@dataclass(frozen=True)
class Progress:
    """What a callback is told: `loss` is a recent mean, accuracies are None before the first evaluation."""

    step: int
    steps: int
    epoch: float
    loss: float
    dev_accuracy: float | None
    best_accuracy: float | None
    seconds: float
    evaluated: bool  # whether this report follows an evaluation
    resumed: bool = False
    penalty: float = 0.0  # the weight of the penalty for certificates now
    halved: int = 0  # how often it was halved, because it cost accuracy


@dataclass(frozen=True)
class Trained:
    """A finished training. Accuracies are those of the weights as stored."""

    folder: Path
    config: Config
    dev_accuracy: float
    test_accuracy: float | None
    seconds: float
    history: tuple[tuple[float, float], ...]  # loss and dev accuracy at each evaluation
    halved: int = 0  # how often the weight of the penalty for certificates was halved


def train(
    config: Config,
    data: Dataset,
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    vocabulary: Sequence[str] | None = None,
    device: str = "auto",
    stored_as: Literal["float32", "float16"] = "float32",
    name: str | None = None,
    command: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train a classifier and write its folder. A folder holding a checkpoint of this same training is continued.

    `config.vocab_size` is the most words to keep without a `vocabulary`. On the CPU a continued training ends with the
    same weights as one that was never stopped.
    """
    recipe, folder = recipe or Recipe(), Path(out)
    may_begin(data, folder)
    where = pick_device(device)
    words, start = begin(recipe, config, data, vocabulary)
    config = replace(config, vocab_size=len(words), num_labels=len(data.labels), labels=data.labels)
    parts = {
        part: encode(examples, words, max_length=config.max_position_embeddings, device=where)
        for part, examples in (("train", data.train), ("dev", data.dev), ("test", data.test))
        if examples
    }
    folder.mkdir(parents=True, exist_ok=True)
    with _own_randomness(where):
        run = _Run(config, recipe, parts, folder, progress, _fingerprint(config, recipe, words, parts, start), start)
        state = run.finish()
    not_collapsed(recipe, state, data.dev)
    embed, classifier = run.embed, run.classifier
    if stored_as == "float16":
        embed.half().float(), classifier.half().float()
    dev = accuracy(embed, classifier, parts["dev"])
    test = accuracy(embed, classifier, parts["test"]) if "test" in parts else None
    facts = _facts(data, config, recipe, dev=dev, test=test) | {
        "stored_as": stored_as,
        "command": command or "certiformer.training.train(...)",
        "seconds": round(state.seconds, 1),
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU",
    }
    count = sum(p.numel() for module in (embed, classifier) for p in module.parameters())
    card = model_card(name or folder.resolve().name, config, facts | {"parameters": count})
    write_folder(
        folder,
        config=config,
        embed=embed,
        classifier=classifier,
        vocabulary=words,
        facts=facts,
        card=card,
        dtype=stored_as,
    )
    (folder / checkpoint.FILE).unlink(missing_ok=True)
    return Trained(folder, config, dev, test, state.seconds, state.history, run.halved)


def _facts(data: Dataset, config: Config, recipe: Recipe, *, dev: float, test: float | None) -> dict[str, Any]:
    """What a folder says of its training."""
    return {
        "data": data.name,
        "train_examples": len(data.train),
        "dev_accuracy": round(dev, 4),
        "test_accuracy": None if test is None else round(test, 4),
        "seed": recipe.seed,
        "recipe": {k: _named(v) for k, v in asdict(recipe).items() if k != "seed"} | {"dropout": config.dropout},
        "date": datetime.date.today().isoformat(),
    }


def _named(value: Any) -> Any:
    """A setting as a card shows it: of the folder of a model its name alone."""
    return Path(value).resolve().name if isinstance(value, str) and Path(value).is_dir() else value


def evaluate(model: Model, examples: Sequence[Example], *, device: str = "auto", batch_size: int = 512) -> float:
    """The accuracy of a model opened from a folder. Texts too long for it are cut."""
    if not isinstance(model.module, Classifier) or not isinstance(model.embed, Embeddings) or not model.max_length:
        raise InputError(f"model {model.name!r} is not one of this package's own classifiers")
    highest = max((example.label for example in examples), default=0)
    if highest >= len(model.labels):
        raise InputError(f"model {model.name!r} knows {len(model.labels)} labels, the data has label {highest}")
    where = pick_device(device)
    moved = model.to(device=where)
    assert isinstance(moved.module, Classifier)
    assert isinstance(moved.embed, Embeddings)
    encoded = encode(examples, model.vocabulary, max_length=model.max_length, device=where)
    return accuracy(moved.embed, moved.module, encoded, batch_size=batch_size)


class _Run:
    """One training from its start or its checkpoint to its best weights.

    A segment is the stretch between two evaluations. The random state is set anew at the start of each, so a
    checkpoint needs to hold none.
    """

    def __init__(
        self,
        config: Config,
        recipe: Recipe,
        parts: dict[str, Encoded],
        folder: Path,
        progress: Callable[[Progress], None] | None,
        settings: str,
        start: Weights,
    ) -> None:
        self.recipe, self.parts, self.folder, self.progress = recipe, parts, folder, progress
        torch.manual_seed(recipe.seed)
        device = parts["train"].ids.device
        embed, classifier = build(config)
        self.embed, self.classifier = embed.to(device), classifier.to(device)
        if start:
            self._load(start)
        self.parameters = [*embed.parameters(), *classifier.parameters()]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": recipe.weight_decay},
                {"params": [p for p in self.parameters if p.dim() == 1], "weight_decay": 0.0},
            ],
            lr=recipe.learning_rate,
            fused=device.type == "cuda",
        )
        self.steps_per_epoch = -(-len(parts["train"]) // recipe.batch_size)
        self.steps = recipe.epochs * self.steps_per_epoch
        # steps while the adversarial step or the penalty for certificates grows
        self.growing = math.ceil(FULL * self.steps) if recipe.certify else self.steps // 2 if recipe.adversarial else 0
        self.best = self._weights()
        self.state = checkpoint.State(settings, 0, -1.0, 0, 0.0, ())
        self.resumed = False
        found = checkpoint.read(folder, settings=settings)
        if found is not None:
            self.state, tensors = found
            self._load(checkpoint.part(tensors, "weights"))
            self.best = {k: v.to(device) for k, v in checkpoint.part(tensors, "best").items()}
            checkpoint.restore_optimizer(self.optimizer, tensors)
            self.resumed = True

    def finish(self) -> checkpoint.State:
        """Train the segments that are left; the modules then hold the best weights."""
        for epoch in range(self.recipe.epochs):
            if (epoch + 1) * self._segments <= self.state.segment:
                continue
            generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + epoch)
            order = epoch_order(self.parts["train"].lengths, batch_size=self.recipe.batch_size, generator=generator)
            for part in range(self._segments):
                if epoch * self._segments + part >= self.state.segment:
                    first = part * len(order) // self._segments
                    end = (part + 1) * len(order) // self._segments
                    self._segment(order[first:end], epoch * self.steps_per_epoch + first)
        self._load(self.best)
        return self.state

    @property
    def halved(self) -> int:
        """How often the weight of the penalty was halved so far."""
        return halvings(self.recipe, self.state.history, self.recipe.epochs * self._segments)

    @property
    def _segments(self) -> int:
        return min(self.recipe.evaluations, self.steps_per_epoch)

    def _segment(self, order: Sequence[Tensor], first_step: int) -> None:
        started, before = time.perf_counter(), self.state
        torch.manual_seed(self.recipe.seed * 1_000_003 + 500_000 + before.segment)
        self.embed.train(), self.classifier.train()
        total = torch.zeros((), device=self.parts["train"].ids.device)
        for i, batch in enumerate(batches(self.parts["train"], order)):
            total += self._step(batch, first_step + i)
            if self.progress and (i + 1) % 25 == 0:
                seconds = before.seconds + time.perf_counter() - started
                self._report(first_step + i + 1, float(total) / (i + 1), seconds, evaluated=False)
        loss = float(total) / len(order)
        if not torch.isfinite(total):
            raise InputError(
                f"training diverged before step {first_step + len(order)} (the loss is {loss}): use a smaller "
                f"learning_rate than {self.recipe.learning_rate:g}"
            )
        dev = accuracy(self.embed, self.classifier, self.parts["dev"])
        better = dev > before.best_accuracy or first_step < self.growing
        if better:
            self.best = self._weights()
        self.state = checkpoint.State(
            settings=before.settings,
            segment=before.segment + 1,
            best_accuracy=dev if better else before.best_accuracy,
            best_segment=before.segment + 1 if better else before.best_segment,
            seconds=before.seconds + time.perf_counter() - started,
            history=(*before.history, (loss, dev)),
        )
        checkpoint.write(self.folder, self.state, self._weights(), self.best, self.optimizer)
        if self.progress:
            self._report(first_step + len(order), loss, self.state.seconds, evaluated=True)

    def _step(self, batch: Batch, step: int) -> Tensor:
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, self.steps, warmup=recipe.warmup)
        self.optimizer.zero_grad(set_to_none=True)
        half = recipe.precision == "bfloat16"
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16) if half else nullcontext():
            loss = self._loss(batch, step)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, recipe.clip)
        self.optimizer.step()
        return loss.detach()

    def _loss(self, batch: Batch, step: int) -> Tensor:
        recipe, ids = self.recipe, batch.ids
        if recipe.word_dropout:
            hidden = (torch.rand(ids.shape, device=ids.device) < recipe.word_dropout) & (ids > 3)
            ids = ids.masked_fill(hidden, 1)  # [UNK]
        embeddings = self.embed(ids)
        if recipe.embedding_noise:
            embeddings = embeddings + recipe.embedding_noise * torch.randn_like(embeddings)
        scores: list[Tensor] | None = [] if recipe.score_penalty else None
        loss = self._cross_entropy(embeddings, batch, scores)
        if recipe.adversarial:
            (gradient,) = torch.autograd.grad(loss, embeddings, retain_graph=True)
            # each word by the same length, which starts small: fresh embeddings are shorter than the final step
            length = recipe.adversarial * min(1.0, (step + 1) / max(1, self.steps // 2))
            moved = embeddings + length * F.normalize(gradient.detach(), dim=-1)
            loss = 0.5 * (loss + self._cross_entropy(moved, batch, None))
        if scores:
            pairs = (batch.mask[:, :, None] & batch.mask[:, None, :])[:, None]  # [batch, 1, n, n]
            squares = torch.stack([(s.float().square() * pairs).sum() / (pairs.sum() * s.shape[1]) for s in scores])
            loss = loss + recipe.score_penalty * squares.mean()
        penalty = weight(recipe, step / self.steps, self.halved)
        if penalty:
            words = batch.mask & (batch.ids != batch.ids[:, :1])  # not [CLS], and not what is behind the last word
            words[torch.arange(len(words)), batch.mask.sum(dim=1) - 1] = False  # [SEP]
            some = words.any(dim=1)
            places = torch.multinomial(torch.where(some[:, None], words, batch.mask).float(), 1)
            loss = loss + penalty * movement(self.classifier, embeddings, batch.mask, positions=places)
        return loss

    def _cross_entropy(self, embeddings: Tensor, batch: Batch, scores: list[Tensor] | None) -> Tensor:
        logits = self.classifier(embeddings, batch.mask, scores)
        return F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.recipe.label_smoothing)

    def _weights(self) -> dict[str, Tensor]:
        return weights_of(self.embed, self.classifier)

    def _load(self, weights: dict[str, Tensor]) -> None:
        self.embed.load_state_dict(checkpoint.part(weights, "embed"))
        self.classifier.load_state_dict(checkpoint.part(weights, "classifier"))

    def _report(self, step: int, loss: float, seconds: float, *, evaluated: bool) -> None:
        assert self.progress is not None
        history = self.state.history
        self.progress(
            Progress(
                step=step,
                steps=self.steps,
                epoch=step / self.steps_per_epoch,
                loss=loss,
                dev_accuracy=history[-1][1] if history else None,
                best_accuracy=self.state.best_accuracy if history else None,
                seconds=seconds,
                evaluated=evaluated,
                resumed=self.resumed,
                penalty=weight(self.recipe, step / self.steps, self.halved),
                halved=self.halved,
            )
        )


def _schedule(step: int, steps: int, *, warmup: float) -> float:
    """Linear to 1 over the warm-up, then linear to 0 at the end."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return (steps - step) / max(1, steps - rising)


def _fingerprint(
    config: Config,
    recipe: Recipe,
    vocabulary: Sequence[str],
    parts: dict[str, Encoded],
    start: Weights,
) -> str:
    digest = hashlib.sha256(json.dumps([asdict(config), asdict(recipe), list(vocabulary)]).encode())
    for name, value in start.items():
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    for part in ("train", "dev"):
        for tensor in (parts[part].ids, parts[part].labels):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
