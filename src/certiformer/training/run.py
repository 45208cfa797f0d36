"""One training from its start, or its checkpoint, to its best weights: AdamW over length-bucketed batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..models.network import Embeddings
from ..recipe import Recipe
from . import checkpoint
from .averaging import Average
from .batches import UNKNOWN, Batch, Encoded, accuracy, batches, epoch_order, some_words
from .bound import CertifiedMargin, of_short_texts
from .centring import centre
from .movement import movement
from .rising import Rising
from .start import load_weights, weights_of
from .substituting import Substituting, reach, with_some_replaced


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


class Run:
    """One training from its start or its checkpoint to its best weights.

    A segment is the stretch between two evaluations. The random state is set anew at the start of each, so a
    checkpoint needs to hold none.
    """

    def __init__(
        self,
        halves: tuple[nn.Module, nn.Module],
        recipe: Recipe,
        parts: dict[str, Encoded],
        folder: Path,
        progress: Callable[[Progress], None] | None,
        settings: str,
        table: Tensor | None = None,
    ) -> None:
        """`halves` map ids `[batch, n]` to embeddings, and these and a mask of the real tokens to logits.
        `table` has the substitutes of every word, where they are trained for."""
        self.recipe, self.parts, self.folder, self.progress = recipe, parts, folder, progress
        device = parts["train"].ids.device
        self.embed, self.classifier = (half.to(device) for half in halves)
        self.parameters = [*self.embed.parameters(), *self.classifier.parameters()]
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
        labels = parts["dev"].labels
        self.chance = int(labels.bincount().max()) / len(labels)
        self.margin = CertifiedMargin(self.classifier, norm=recipe.certify_norm) if recipe.bound else None
        self.table = None if table is None else table.to(device)
        self.substituting = None
        if self.table is not None and recipe.synonyms_weight:
            self.substituting = Substituting(self.embed, self.classifier, self.table)
        self.average = Average(self.parameters, recipe.averaging)
        self.best = self._weights()
        self.safe = self.best if recipe.certify or recipe.bound else {}  # the last that cost no more than is allowed
        self.state = checkpoint.State(settings, 0, -1.0, 0, 0.0, ())
        self.resumed = False
        found = checkpoint.read(folder, settings=settings)
        if found is not None:
            self.state, tensors = found
            self._load(checkpoint.part(tensors, "weights"))
            self.best, self.safe = (
                {k: v.to(device) for k, v in checkpoint.part(tensors, name).items()} for name in ("best", "safe")
            )
            checkpoint.restore_optimizer(self.optimizer, tensors)
            self.average.restore(checkpoint.part(tensors, "average"), self._done(self.state.segment))
            self.resumed = True

    def finish(self) -> checkpoint.State:
        """Train the segments that are left; the modules then hold the best weights."""
        for epoch in range(self.recipe.epochs):
            if (epoch + 1) * self._segments <= self.state.segment:
                continue
            generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + epoch)
            order = epoch_order(self.parts["train"].lengths, batch_size=self.recipe.batch_size, generator=generator)
            for segment in range(epoch * self._segments, (epoch + 1) * self._segments):
                if segment >= self.state.segment:
                    first, end = (self._done(k) - epoch * self.steps_per_epoch for k in (segment, segment + 1))
                    self._segment(order[first:end], self._done(segment))
        self._load(self.best)
        return self.state

    @property
    def rising(self) -> Rising:
        """The weight of the losses for certificates, as far as is known."""
        return self._rising(self.state.history)

    def _rising(self, history: Sequence[tuple[float, float]]) -> Rising:
        return Rising(self.recipe, history, self.recipe.epochs * self._segments, self.chance)

    @property
    def _growing(self) -> int:
        """Steps whose weights are not compared with earlier ones, since what is asked of them still grows."""
        if self.substituting is not None:
            return self.steps - 1  # the last weights
        if self.recipe.certify or self.recipe.bound:
            return math.ceil(self.rising.full * self.steps)
        return self.steps // 2 if self.recipe.adversarial else 0

    @property
    def _segments(self) -> int:
        return min(self.recipe.evaluations, self.steps_per_epoch)

    def _done(self, segments: int) -> int:
        """The steps of so many segments."""
        epochs, part = divmod(segments, self._segments)
        return epochs * self.steps_per_epoch + part * self.steps_per_epoch // self._segments

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
        with self.average.shown():
            dev = accuracy(self.embed, self.classifier, self.parts["dev"])
            history = (*before.history, (loss, dev))
            rising = self._rising(history)
            within = rising.within or not self.safe
            better = (dev > before.best_accuracy or first_step < self._growing) and within
            if better:
                self.best = self._weights()
            if self.safe and within:
                self.safe = self._weights()
        if self.safe and rising.lost:
            self._load(self.safe)
            self.average.restart()
        self.state = checkpoint.State(
            settings=before.settings,
            segment=before.segment + 1,
            best_accuracy=dev if better else before.best_accuracy,
            best_segment=before.segment + 1 if better else before.best_segment,
            seconds=before.seconds + time.perf_counter() - started,
            history=history,
        )
        parts = {"weights": self._weights(), "best": self.best, "average": self.average.to_tensors()}
        parts["safe"] = self.safe
        checkpoint.write(self.folder, self.state, parts, self.optimizer)
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
        length = torch.nn.utils.clip_grad_norm_(self.parameters, recipe.clip)
        if (self.margin is None and self.substituting is None) or bool(
            torch.isfinite(length)
        ):  # bounds that overflow have no gradient
            self.optimizer.step()
        if recipe.certify and recipe.centring and isinstance(self.embed, Embeddings):
            centre(self.embed, batch, recipe.centring)
        self.average.follow()
        return loss.detach()

    def _loss(self, batch: Batch, step: int) -> Tensor:
        recipe, ids = self.recipe, batch.ids
        if self.table is not None and recipe.synonyms_shown:
            ids = with_some_replaced(ids, batch.words, self.table, recipe.synonyms_shown)
        if recipe.word_dropout:
            hidden = (torch.rand(ids.shape, device=ids.device) < recipe.word_dropout) & batch.words
            ids = ids.masked_fill(hidden, UNKNOWN)
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
        part = self.rising.part(step / self.steps)
        if recipe.certify and part:
            places = some_words(batch, recipe.certify_words)
            moved = movement(
                self.classifier,
                embeddings,
                batch.mask,
                positions=places,
                norm=recipe.certify_norm,
                parts=recipe.certify_parts,
            )
            loss = loss + recipe.certify * part * moved
        if self.margin is not None and part:
            proved = of_short_texts(self.margin, embeddings, batch, share=recipe.bound_radius, words=recipe.bound_words)
            loss = loss if proved is None else loss + recipe.bound * part * proved
        far = reach(step / self.steps)
        if self.substituting is not None and far:
            worst = self.substituting(ids, batch, far)
            robust = recipe.synonyms_weight * far
            loss = loss if worst is None else (1 - robust) * loss + robust * worst
        return loss

    def _cross_entropy(self, embeddings: Tensor, batch: Batch, scores: list[Tensor] | None) -> Tensor:
        logits = self.classifier(embeddings, batch.mask, *([] if scores is None else [scores]))
        return F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.recipe.label_smoothing)

    def _weights(self) -> dict[str, Tensor]:
        return weights_of(self.embed, self.classifier)

    def _load(self, weights: dict[str, Tensor]) -> None:
        load_weights(self.embed, self.classifier, weights)

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
                penalty=self.recipe.certify * self.rising.part(step / self.steps),
                halved=self.rising.halved,
            )
        )


def _schedule(step: int, steps: int, *, warmup: float) -> float:
    """Linear to 1 over the warm-up, then linear to 0 at the end."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return (steps - step) / max(1, steps - rising)


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
