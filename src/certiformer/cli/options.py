"""The flags of the command line that the library does not have: where sentences come from and where results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.names import option
from ..data.tables import Form
from ..errors import InputError

ANY_NORMS = "1, 2, inf (or l1, l2, linf); may be given several times."


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """Where a table has its texts."""

    text_column: str | None = option(None, "Column of the text: its name, or its number.")


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """How much is said."""

    quiet: bool = option(False, "Print the result only.")
    verbose: bool = option(False, "Say on stderr what is opened, captured and found, and how long it takes.")


@dataclass(frozen=True, kw_only=True)
class Source(TextColumn):
    """The model and the sentences."""

    model: str | None = option(None, "A bundled model such as sst-2 (the default), a folder, or hf:NAME.")
    file: str | None = option(None, "Read sentences: .csv, .tsv, .jsonl, or text, a line each; - is stdin.")
    format: Form | None = option(None, "What --file holds; default: by its name.")


@dataclass(frozen=True, kw_only=True)
class Target(Quiet):
    """Where the results go."""

    json: bool = option(False, "Print JSON (docs/json.md) instead of text.")
    out: Path | None = option(None, "Write the results to this .json or .html file too.")


@dataclass(frozen=True, kw_only=True)
class Resumable(Target):
    """Where results go that a later run can go on from."""

    resume: bool = option(False, "Go on from what --out FILE.json holds of a run that was stopped.")


@dataclass(frozen=True, kw_only=True)
class Norms:
    """In which norms."""

    norm: tuple[str, ...] = option(("2",), ANY_NORMS)


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """The weight of the penalty for certificates."""

    certify: str = option("0", "Weight of the penalty that makes a model certifiable, or auto: several are tried.")
    weights: str = option("0.02,0.1,0.5", "Weights that --certify auto tries beside 0.")
    sentences: int = option(16, "Short dev texts of which --certify auto certifies a word.")

    def weight(self) -> float | None:
        """The one that was given, None for auto."""
        return None if self.certify == "auto" else _number(self.certify)

    def tried(self) -> dict[str, Any]:
        """What `certiformer.training.front` is told."""
        return {"weights": [_number(w) for w in self.weights.split(",")], "sentences": self.sentences}


def _number(written: str) -> float:
    try:
        return float(written)
    except ValueError:
        raise InputError(f"--certify {written}: expected a number, or auto") from None


@dataclass(frozen=True, kw_only=True)
class Labelled(TextColumn):
    """Labelled data."""

    data: str = option("sst", "sst, yelp, or a file or folder of .csv, .tsv or .jsonl tables.")
    data_dir: Path | None = option(None, "Folder that holds the data; default: CERTIFORMER_DATA, else a download.")
    label_column: str | None = option(None, "Column of the label: its name, or its number.")
    labels_from: int | None = option(None, "Number of the first label, 0 or 1, where the table leaves it open.")
