"""`certiformer export`"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from ..core.names import option
from ..errors import InputError
from ..options import CertifyQuestion, Machine
from .asking import sentences
from .flags import Given, command
from .options import Quiet, Source


@dataclass(frozen=True, kw_only=True)
class Written(Quiet):
    """Where the files go."""

    to: Path = option(Path("question"), "Folder for model.onnx, property_0.vnnlib, ... and instances.csv.")


@command(Written, CertifyQuestion, Source, Machine, without=("words", "attack", "norm", "progress", "threads"))
def export(given: Given) -> int:
    """Write a question as ONNX and VNN-LIB files, for other tools: may words move by --eps in the norm inf?

    Example: [bold]certiformer export "a great film" --eps 0.01 --positions great --to question[/bold]
    """
    question = given(CertifyQuestion, norm="inf")
    target = given(Written).to
    if target.exists() and not target.is_dir():
        raise InputError(f"--to {target}: this is a file")
    items = sentences(given)
    if len(items) != 1 or question.eps is None:
        raise InputError(f"{len(items)} sentences: one is exported at a time, with --eps")
    from ..api import Certifier
    from ..formats.export import export as write
    from ..models import load
    from ..sets import Ball

    certifier = Certifier(load(given(Source).model))
    within = Ball(question.eps, norm="inf", positions=question.positions)
    for path in write(certifier, items[0].text, target, within=within, label=question.label):
        if not given(Written).quiet:
            typer.echo(path)
    return 0
