"""The flags of the command line that the library does not have: where sentences come from and where results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.names import option
from ..data.tables import Form


@dataclass(frozen=True, kw_only=True)
class Source:
    """The model and the sentences."""

    model: str | None = option(None, "A bundled model such as sst-2 (the default), a folder, or hf:NAME.")
    file: str | None = option(None, "Read sentences: .csv, .tsv, .jsonl, or text, a line each; - is stdin.")
    text_column: str | None = option(None, "Column of the text: its name, or its number.")
    format: Form | None = option(None, "What --file holds; default: by its name.")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the results go."""

    json: bool = option(False, "Print JSON (docs/json.md) instead of text.")
    out: Path | None = option(None, "Write the results to this .json or .html file too.")
    quiet: bool = option(False, "Print the result only.")


@dataclass(frozen=True, kw_only=True)
class Resumable(Target):
    """Where results go that a later run can go on from."""

    resume: bool = option(False, "Go on from what --out FILE.json holds of a run that was stopped.")


@dataclass(frozen=True, kw_only=True)
class Norms:
    """In which norms."""

    norm: tuple[str, ...] = option(("2",), "1, 2, inf (or l1, l2, linf); may be given several times.")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What is done besides proofs."""

    attack: bool = option(True, "Search counterexamples beside the proofs.")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Labelled data."""

    data: str = option("sst", "sst, yelp, or a file or folder of .csv, .tsv or .jsonl tables.")
    data_dir: Path | None = option(None, "Folder that holds the data; default: CERTIFORMER_DATA, else a download.")
    text_column: str | None = option(None, "Column of the text: its name, or its number.")
    label_column: str | None = option(None, "Column of the label: its name, or its number.")
    labels_from: int | None = option(None, "Number of the first label, 0 or 1, where the table leaves it open.")
