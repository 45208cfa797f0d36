"""Every model of the paper and the bundled ones as data, and what trains them all: `certiformer reproduce zoo`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from certiformer.data import Dataset, Example, load_data
from certiformer.errors import InputError
from certiformer.models.folder import CONFIG
from certiformer.models.network import LAYER_NORMS, Config
from certiformer.recipe import Recipe
from certiformer.training import Progress, Trained, checkpoint, train

Stored = Literal["float32", "float16"]


@dataclass(frozen=True)
class Entry:
    """One model of the zoo."""

    name: str
    data: Literal["sst", "yelp"]
    config: Config
    recipe: Recipe
    stored_as: Stored = "float32"


# dev accuracy peaks after a few epochs; without a strong penalty single attention scores reach 9, in the third layer
# of a 256-wide model 2,900, and no bound is of use there
_OURS = Recipe(epochs=4, learning_rate=5e-4, averaging=0.0)
_SST = replace(_OURS, batch_size=128, weight_decay=0.1, word_dropout=0.2, score_penalty=0.05)
_YELP = replace(_OURS, batch_size=256, weight_decay=0.05, word_dropout=0.05, score_penalty=0.02)
_BUNDLED = Recipe(epochs=2, learning_rate=1e-3, word_dropout=0.3)
_WEIGHTS = {1: 0.02, 2: 0.0, 3: 0.02}  # of --certify, by layers; chosen on dev (docs/notebook/recipes.md)
_DEEP = replace(_SST, learning_rate=3e-4)


def _paper() -> tuple[Entry, ...]:
    entries: list[Entry] = []
    sets: tuple[tuple[Literal["sst", "yelp"], Recipe], ...] = (("sst", _SST), ("yelp", _YELP))
    for data, recipe in sets:
        for layers in (1, 2, 3):
            for norm in LAYER_NORMS:
                # without any normalisation, signals grow with depth: a gentler start
                own = recipe if norm != "none" else replace(recipe, learning_rate=3e-4)
                name = f"{data}_{layers}" + ("" if norm == "no_var" else f"_{norm}")
                entries.append(Entry(name, data, Config(layers, 15000, layer_norm=norm, dropout=0.2), own))
        for norm in LAYER_NORMS:
            name = f"{data}_1_small" + ("" if norm == "no_var" else f"_{norm}")
            config = Config(1, 15000, hidden_size=64, intermediate_size=128, layer_norm=norm, dropout=0.2)
            entries.append(Entry(name, data, config, replace(recipe, learning_rate=1e-3)))
    for layers in (6, 12):
        config = Config(layers, 15000, hidden_size=128, intermediate_size=128, dropout=0.2)
        entries.append(Entry(f"sst_{layers}_d128", "sst", config, _DEEP))
    return tuple(entries)


def _bundled() -> tuple[Entry, ...]:
    return tuple(
        Entry(f"sst-{n}", "sst", Config(n, 8000, 64, 128, dropout=0.3), replace(_BUNDLED, certify=weight), "float16")
        for n, weight in _WEIGHTS.items()
    )


ZOO: tuple[Entry, ...] = (*_bundled(), *_paper())


def pick(names: Sequence[str] | None = None, *, stored_as: Stored | None = None) -> tuple[Entry, ...]:
    """The entries of these names, in the zoo's order; all of them when none is named."""
    known = [entry.name for entry in ZOO]
    for name in names or ():
        if name not in known:
            raise InputError(f"no model {name!r} in the zoo: it has {', '.join(known)}")
    chosen = [entry for entry in ZOO if names is None or entry.name in names]
    return tuple(entry if stored_as is None else replace(entry, stored_as=stored_as) for entry in chosen)


def described(entry: Entry) -> str:
    """A line of the list."""
    c = entry.config
    return f"{entry.name:22} {c.num_hidden_layers:2} layers, width {c.hidden_size}, {c.layer_norm}"


def tiny(entry: Entry) -> Entry:
    """The same model in a size that trains in a second, to try the whole way: in too few steps for a penalty."""
    config = replace(entry.config, hidden_size=16, intermediate_size=32, vocab_size=min(300, entry.config.vocab_size))
    layers = min(config.num_hidden_layers, 3)
    return replace(
        entry,
        config=replace(config, num_hidden_layers=layers),
        recipe=replace(entry.recipe, epochs=1, batch_size=32, evaluations=1, certify=0.0),
    )


def _tiny_data(data: Dataset) -> Dataset:
    def some(examples: tuple[Example, ...], count: int) -> tuple[Example, ...]:
        return examples[:: max(1, len(examples) // count)][:count]  # spread out: some files are sorted by label

    return replace(data, train=some(data.train, 256), dev=some(data.dev, 64), test=some(data.test, 64))


def train_entry(
    entry: Entry,
    data: Dataset,
    out: Path,
    *,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train one entry into `out/<its name>`, continuing where it was stopped."""
    return train(
        entry.config,
        data,
        out / entry.name,
        recipe=entry.recipe,
        device=device,
        stored_as=entry.stored_as,
        name=entry.name,
        source=("--data", entry.data),
        progress=progress,
    )


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a model whose training has ended."""
    return (folder / CONFIG).exists() and not (folder / checkpoint.FILE).exists()


def train_all(
    entries: Sequence[Entry],
    out: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    scale: Literal["full", "tiny"] = "full",
    say: Callable[[str], None] = print,
) -> list[Trained]:
    """Train the entries one by one, skipping finished ones."""
    started, results = time.perf_counter(), []
    loaded: dict[str, Dataset] = {}
    for number, entry in enumerate(entries, 1):
        title = f"[{number}/{len(entries)}] {entry.name}"
        if is_finished(out / entry.name):
            say(f"{title}: already trained, skipped")
            continue
        if entry.data not in loaded:
            data = load_data(entry.data, data_dir=data_dir)
            loaded[entry.data] = _tiny_data(data) if scale == "tiny" else data

        def report(progress: Progress, title: str = title) -> None:
            if progress.evaluated:
                left = progress.seconds / progress.step * (progress.steps - progress.step)
                say(
                    f"{title}: epoch {progress.epoch:.1f}, loss {progress.loss:.4f}, dev {progress.dev_accuracy:.2%} "
                    f"(best {progress.best_accuracy:.2%}), {progress.seconds:.0f} s, about {left:.0f} s left"
                )

        chosen = tiny(entry) if scale == "tiny" else entry
        result = train_entry(chosen, loaded[entry.data], out, device=device, progress=report)
        results.append(result)
        test = "" if result.test_accuracy is None else f", test {result.test_accuracy:.2%}"
        say(f"{title}: done in {result.seconds:.0f} s, dev {result.dev_accuracy:.2%}{test}")
    say(f"{len(results)} trained in {time.perf_counter() - started:.0f} s, in {out}")
    return results
