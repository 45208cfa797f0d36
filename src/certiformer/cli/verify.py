"""`certiformer verify`"""

from __future__ import annotations

import json as encoder
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..core.names import option
from ..errors import InputError
from ..options import Beside, Options, settings
from . import clock
from .flags import Given, command, one_argument
from .options import Quiet
from .terminal import console, say

if TYPE_CHECKING:
    from ..formats import FileAnswer, Instance


@dataclass(frozen=True, kw_only=True)
class Answered(Quiet):
    """Where the answer goes."""

    json: bool = option(False, "Print JSON instead of text.")
    out: Path | None = option(None, "Write the answer to this file, as VNN-COMP wants it; .html: a page with pictures.")
    seed: int = option(0, "Seed of the attack's random starts.")


MODEL = one_argument("model", "An ONNX file, plain or .gz.")
PROPERTY = one_argument("property", "A VNN-LIB file, 1.0 or 2.0, plain or .gz.")


@command(Answered, Beside, Options, argument=(MODEL, PROPERTY), without=("tolerance",))
def verify(given: Given) -> int:
    """Is there an input within the bounds that makes the conditions of a property true? (needs the extra onnx)

    Prints unsat (proved that there is none; exit code 0), sat (one was found, and onnxruntime agrees), timeout or
    unknown (exit code 1).

    Example: [bold]certiformer verify model.onnx property.vnnlib --timeout 100[/bold]
    """
    target, options = given(Answered), given(Options)
    out = target.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise InputError(f"--out {out}: {'this is a folder' if out.is_dir() else f'no folder {out.parent}'}")
    from ..formats import Instance, result_text
    from ..models.device import pick_device
    from ..models.folder import write_bytes

    instance = Instance(given.values["model"], given.values["property"])
    device = str(pick_device(given.device))
    spent = time.perf_counter() - clock.get("began", time.perf_counter())  # imports and files count against --timeout
    spent += clock.get("started", 0.0)  # Python ends in about the time in which it started
    left = None if options.timeout is None else max(options.timeout - spent, 0.1)
    options = replace(options, timeout=left, device=device)
    answer = instance.answer(options, attack=given(Beside).attack, seed=target.seed)
    if out is not None:
        text = _page(instance, answer, given) if out.suffix == ".html" else result_text(answer, instance.query)
        write_bytes(out, text.encode())
    if target.json:
        typer.echo(
            encoder.dumps(
                {**_files(given), **answer.to_dict(), "settings": settings(options, device=str(options.device))}
            )
        )
    else:
        typer.echo(answer.verdict)
        if not target.quiet:
            _tell(instance, answer)
    if out is not None and not target.quiet:
        say(f"written: {out}")
    return 0 if answer.verdict == "unsat" else 1


def _files(given: Given) -> dict[str, Any]:
    return {name: str(given.values[name]) for name in ("model", "property")}


def _tell(instance: Instance, answer: FileAnswer) -> None:
    """What the answer rests on, in a few lines."""
    output = console()
    count = len(instance.query.cases)
    output.print(
        f"{count} case{'s' * (count != 1)}, {instance.query.input.size} inputs, {instance.query.output.size} outputs; "
        f"the model as it was read is within {answer.difference:.1e} of onnxruntime; {answer.seconds:.1f} s",
        style="dim",
    )
    if answer.witness is not None:
        shown = ", ".join(f"{float(v):.5g}" for v in answer.witness.y[:10])
        output.print(f"onnxruntime gives [{shown}] there, in {instance.runtime.dtype.__name__}.", markup=False)
        if answer.witness.rounded:
            output.print(f"{answer.witness.rounded} inputs have bounds without such a number: the nearest was taken.")
    elif answer.verdict == "unsat":
        of = "every float32 evaluation" if answer.arithmetic == "float32" else "the real-valued function of the weights"
        output.print(f"Proved of {of}: {answer.method}.")
    elif answer.reason:
        output.print(f"Not decided: {answer.reason}.", markup=False)


def _page(instance: Instance, answer: FileAnswer, given: Given) -> str:
    from ..formats.pages import verify_page

    return verify_page(instance, answer, _files(given))
