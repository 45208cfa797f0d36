"""Find a dataset: in a folder on this machine, else through Hugging Face `datasets`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError
from . import download
from .labels import Labels
from .readers import Example, phrases, read_table, read_trees, sentences
from .tables import Columns, read_lines

DATASETS = ("sst", "yelp")
DATA_VARIABLE = "CERTIFORMER_DATA"
SPLITS = {"train": ("train",), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
_TABLES = (".tsv", ".csv", ".jsonl", ".tsv.gz", ".csv.gz", ".jsonl.gz")
_TREES = (".txt", ".txt.gz")


@dataclass(frozen=True)
class Dataset:
    """Labelled text in three parts; a part that is not at hand is empty. `source` says where it came from."""

    name: str
    train: tuple[Example, ...]
    dev: tuple[Example, ...]
    test: tuple[Example, ...]
    labels: tuple[str, ...] = ("negative", "positive")
    source: str = ""


@dataclass(frozen=True)
class Tables:
    """How tables that are given by path are to be read. `names` are the labels, such as a model's, in their order."""

    text_column: str | None = None
    label_column: str | None = None
    labels_from: int | None = None
    names: tuple[str, ...] = ()


def load_data(
    name_or_path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    tables: Tables | None = None,
) -> Dataset:
    """`sst` or `yelp` by name, or a table of labels and sentences (or a folder of train, dev and test) by path.

    The named ones are looked for below `data_dir`, else below the folder in CERTIFORMER_DATA, else fetched through
    Hugging Face `datasets` where that is installed.
    """
    name = os.fspath(name_or_path)
    if name not in DATASETS:
        return _from_path(Path(name), tables or Tables())
    given = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    if given is None:
        return _fetched(name)
    root = Path(given)
    if not root.is_dir():
        origin = "data_dir" if data_dir is not None else DATA_VARIABLE
        raise InputError(f"data {name!r}: {origin} is {os.fspath(given)!r}, which is not a folder")
    return _sst(root) if name == "sst" else _yelp(root)


def _sst(root: Path) -> Dataset:
    folders = [root / part for part in (".", "sst", "SST", "trees", "sst/trees", "SST-2", "sst2", "glue/SST-2")]
    trees = {
        split: _first(folders, [f"{stem}{end}" for end in _TREES for stem in (f"trees.{split}", split)])
        for split in SPLITS
    }
    table = _first(folders, [f"{stem}{end}" for end in _TABLES for stem in ("phrases.train", "train")])
    dev_table = _first(folders, [f"dev{end}" for end in _TABLES])
    tree_file = {split: path for split, path in trees.items() if path is not None}
    if table is None and "train" not in tree_file:
        raise InputError(
            f"data 'sst': looked below {root} for sst/phrases.train.tsv, SST-2/train.tsv or trees/train.txt (also .gz) "
            f"and found none. {_HOW['sst']}"
        )
    if "dev" not in tree_file and dev_table is None:
        raise InputError(f"data 'sst': looked below {root} for trees/dev.txt or SST-2/dev.tsv (also .gz), found none")
    train = read_table(table, tokenized=True) if table else phrases(read_trees(tree_file["train"]))
    if "dev" in tree_file:
        dev = sentences(read_trees(tree_file["dev"]))
    else:
        assert dev_table is not None
        dev = read_table(dev_table, tokenized=True)
    test = sentences(read_trees(tree_file["test"])) if "test" in tree_file else ()
    return Dataset("sst", train, dev, test, source=str(root))


def _yelp(root: Path) -> Dataset:
    folders = [root / part for part in (".", "yelp", "yelp_polarity", "yelp_review_polarity_csv")]
    for stem in ("sentences.", ""):
        files = {
            split: _first(folders, [f"{stem}{s}{end}" for s in names for end in _TABLES])
            for split, names in SPLITS.items()
        }
        if files["train"] is not None:
            # only the files named "sentences." are certain to be split into words already
            parts = {k: read_table(path, tokenized=bool(stem)) if path else () for k, path in files.items()}
            if any(e.label == 2 for part in parts.values() for e in part):  # the public files say 1 and 2
                parts = {k: tuple(replace(e, label=e.label - 1) for e in part) for k, part in parts.items()}
            return _finish("yelp", parts, source=str(root))
    raise InputError(
        f"data 'yelp': looked below {root} for yelp/train.csv or yelp/sentences.train.tsv (also .gz) and found none. "
        f"{_HOW['yelp']}"
    )


def _from_path(path: Path, tables: Tables) -> Dataset:
    columns, labels = Columns(tables.text_column, tables.label_column), Labels(tables.names, tables.labels_from)
    if os.path.isfile(path):
        part = _read_any(path, columns, labels)
        labels.check(f"data {str(path)!r}")
        return _finish(
            path.name, {"train": (), "dev": (), "test": part}, source=str(path), names=tables.names, hold_out=False
        )
    if os.path.isdir(path):
        files = {
            split: _first([path], [f"{s}{end}" for s in names for end in _TABLES + _TREES])
            for split, names in SPLITS.items()
        }
        if not any(files.values()):
            raise InputError(
                f"data {str(path)!r}: looked there for train, dev and test .tsv, .csv or .jsonl and found none"
            )
        parts = {split: _read_any(file, columns, labels) if file else () for split, file in files.items()}
        labels.check(f"data {str(path)!r}")
        return _finish(path.resolve().name, parts, source=str(path), names=tables.names)
    raise InputError(
        f"no data {str(path)!r}: neither a file, nor a folder, nor one of the known sets {', '.join(DATASETS)}"
    )


def _read_any(path: Path, columns: Columns, labels: Labels) -> tuple[Example, ...]:
    if path.name.endswith(_TREES):
        for _, line in read_lines(path):
            if line.strip() and line.lstrip().startswith("("):
                return sentences(read_trees(path))
            if line.strip():
                break
    return read_table(path, labels=labels, columns=columns)


def _finish(
    name: str,
    parts: dict[str, tuple[Example, ...]],
    *,
    source: str,
    names: tuple[str, ...] = (),
    hold_out: bool = True,
) -> Dataset:
    """Names for the labels, and a dev part: where none was given, every tenth training example at most 5,000."""
    parts = dict(parts)
    if hold_out and parts["train"] and not parts["dev"]:
        parts["train"], parts["dev"] = _held_out(parts["train"])
    count = 1 + max((example.label for part in parts.values() for example in part), default=1)
    labels = names or (("negative", "positive") if count <= 2 else tuple(str(i) for i in range(count)))
    return Dataset(name, parts["train"], parts["dev"], parts["test"], labels=labels, source=source)


def _held_out(train: Sequence[Example]) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    step = max(10, len(train) // 5000)
    kept = tuple(e for i, e in enumerate(train) if i % step != step - 1)
    return kept, tuple(train[step - 1 :: step])


def _fetched(name: str) -> Dataset:
    try:
        parts = download.fetch(name)
    except download.NotInstalledError:
        raise InputError(
            f"data {name!r}: no folder was given (data_dir, or the variable {DATA_VARIABLE}) and Hugging Face "
            f"'datasets' is not installed. {_HOW[name]}"
        ) from None
    return _finish(name, parts, source="Hugging Face datasets")


def _first(folders: Iterable[Path], names: Sequence[str]) -> Path | None:
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


_HOW = {
    "sst": (
        "Either install 'certiformer[hf]' to fetch it, or unpack "
        "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip (and SST-2 of GLUE for its phrases) and name the "
        f"folder by data_dir or {DATA_VARIABLE}"
    ),
    "yelp": (
        "Either install 'certiformer[hf]' to fetch it, or unpack yelp_review_polarity_csv (train.csv, test.csv) and "
        f"name the folder by data_dir or {DATA_VARIABLE}"
    ),
}
