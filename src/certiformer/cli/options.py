"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Method(str, Enum):
    """How bounds are computed."""

    auto = "auto"
    ibp = "ibp"
    forward = "forward"
    backward = "backward"
    backward_forward = "backward-forward"


class Relaxation(str, Enum):
    """Which linear bounds of the operations."""

    paper = "paper"
    tight = "tight"


class Budget(str, Enum):
    """How much time the tight relaxations may take."""

    fast = "fast"
    balanced = "balanced"
    tight = "tight"


class Precision(str, Enum):
    """Number format of the bounds."""

    float64 = "float64"
    float32 = "float32"


class Attack(str, Enum):
    """How counterexamples are searched."""

    gradient = "gradient"
    enumeration = "enumeration"


def _bundled() -> list[str]:
    from ..models import BUNDLED

    return list(BUNDLED)


Data = Annotated[str, typer.Option(help="sst, yelp, or a file or folder of .csv, .tsv or .jsonl tables.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder that holds the data; default: CERTIFORMER_DATA, else a download.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]

Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="One or several sentences.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="A bundled model such as sst-2 (the default), or a folder.", autocompletion=_bundled
    ),
]
Norms = Annotated[list[str] | None, typer.Option("--norm", "-p", help="1, 2 or inf; may be given several times.")]
Norm = Annotated[str, typer.Option("--norm", "-p", help="1, 2 or inf.")]
MethodOption = Annotated[Method, typer.Option("--method", help="How bounds are computed.")]
RelaxationOption = Annotated[
    Relaxation | None, typer.Option("--relaxation", help="Which linear bounds; default: the library's.")
]
BudgetOption = Annotated[Budget, typer.Option("--budget", help="How much time a tighter bound may cost.")]
Steps = Annotated[int, typer.Option("--steps", help="Steps of optimising the bounds: tighter and slower.", min=0)]
MoreSplits = Annotated[
    int | None,
    typer.Option("--splits", help="Pieces each ball may be cut into: tighter and slower. With --steps: 4.", min=0),
]
Splits = Annotated[int, typer.Option("--splits", help="Pieces each ball may be cut into: tighter and slower.", min=0)]
Words = Annotated[int, typer.Option("--words", help="Perturb every set of this many words at once.", min=1)]
Positions = Annotated[
    list[str] | None,
    typer.Option("--positions", help="Only these: a position or a word; 2+3 moves both at once. Comma-separated."),
]
Tolerance = Annotated[float, typer.Option("--tolerance", help="Relative width to which a radius is searched.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md) instead of text.")]
File = Annotated[
    str | None,
    typer.Option("--file", "-f", help="Read sentences: .csv, .tsv, .jsonl, or text, a line each; - is stdin."),
]
TextColumn = Annotated[str | None, typer.Option("--text-column", help="Column of the text: its name, or its number.")]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", help="Column of the label: its name, or its number.")
]
LabelsFrom = Annotated[
    int | None, typer.Option("--labels-from", help="Number of the first label: 0 or 1.", min=0, max=1)
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the results to this .json or .html file too.")]
Dtype = Annotated[Precision, typer.Option("--dtype", help="Number format of the bounds.")]
WithAttack = Annotated[bool, typer.Option("--attack/--no-attack", help="Search counterexamples beside the proofs.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", help="CPU threads; default: OMP_NUM_THREADS, else one for a small model.", min=1),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from what --out FILE.json holds of a run that was stopped.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the attack's random starts.")]
