"""`certiformer image`"""

from __future__ import annotations

import json as encoder
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..core.names import option
from ..errors import InputError
from ..named import check_name
from ..norms import norm_name
from ..numbers import down, up
from ..options import AttackQuestion, Beside, Options, Question, RadiusCall, VerifyQuestion
from .flags import Given, command, one_argument
from .options import Quiet
from .pixels import Answer, Moved, moved
from .terminal import console, say

if TYPE_CHECKING:
    from torch import Tensor

    from ..api import Certifier
    from ..report.pictures import Patches

SHADES = " .:-=+*#%@"


@dataclass(frozen=True, kw_only=True)
class Drawn(Quiet):
    """How the picture is read, and where the results go."""

    mean: str | None = option(None, "Subtracted from pixels of 0 to 1: a number, or one a channel with commas.")
    std: str | None = option(None, "What they are divided by then.")
    json: bool = option(False, "Print JSON instead of text.")
    out: Path | None = option(None, "Write a page with pictures to this .html file too.")


MODEL = one_argument("model", "An ONNX file, a folder, or hf:NAME, of a model that cuts pictures into patches.")
PICTURE = one_argument("picture", "A .npy array as the model reads it, or a .png, .jpg, ...")


@command(Drawn, Moved, RadiusCall, Beside, AttackQuestion, argument=(MODEL, PICTURE), without=("words",))
def image(given: Given) -> int:
    """How far may each patch of a picture move? Certified and attacked radii, as a map beside the picture.

    With --eps: does what the model says hold wherever pixels move by that much? Exit code 0: proved; 1: it is not.

    Example: [bold]certiformer image vit.onnx digit.png --norm inf --out page.html[/bold]
    """
    target = given(Drawn)
    if target.out is not None and (target.out.suffix != ".html" or not target.out.parent.is_dir()):
        raise InputError(f"--out {target.out}: expected a name that ends in .html, in a folder that is there")
    question, attacking, eps = given(Question), given(AttackQuestion), given(Moved).eps
    if eps is None and given.said & {"clip", "property"}:
        raise InputError("--clip and --property: they go with --eps")
    check_name(given.values["model"])
    from ..api import Certifier
    from ..models import load
    from ..models.device import pick_device
    from ..models.folder import write_bytes
    from ..models.images import Scale, read_pixels

    scale = Scale(_numbers("mean", target.mean), _numbers("std", target.std))
    pixels = read_pixels(given.values["picture"])
    picture = scale.read(pixels)
    certifier = Certifier(load(given.values["model"]), given(Options), device=str(pick_device(given.device)))
    if eps is None:
        answer = _radii(certifier, picture, question, attacking if given(Beside).attack else None)
    else:
        answer = moved(certifier, pixels, scale, given(Moved), given(VerifyQuestion), question)
    if target.json:
        typer.echo(encoder.dumps({"model": certifier.model.name, **answer.plain}))
    elif target.quiet:
        typer.echo("\n".join(answer.lines))
    else:
        answer.show()
    if target.out is not None:
        write_bytes(target.out, answer.page().encode())
        if not target.quiet:
            say(f"written: {target.out}")
    return answer.code


def _radii(certifier: Certifier, picture: Tensor, question: Question, attack: AttackQuestion | None) -> Answer:
    """How far each patch may move."""
    from ..report.pictures import measure_patches, patches_page

    found = measure_patches(certifier, picture, question, attack)
    pairs = enumerate(zip(found.certified, found.attacked, strict=True))
    return Answer(
        plain=found.to_dict(),
        lines=[f"{k}\t{proved!r}\t{'' if reached is None else repr(reached)}" for k, (proved, reached) in pairs],
        show=partial(_show, found),
        page=partial(patches_page, found, certifier.model.name),
        code=0,
    )


def _numbers(name: str, given: str | None) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in given.split(",")) if given else ()
    except ValueError:
        found = (math.nan,)
    if not all(math.isfinite(v) for v in found):
        raise InputError(f"--{name} {given}: expected numbers with commas between them")
    return found


def _show(found: Patches) -> None:
    """The picture in characters, and the radii beside it: the darker the patch, the less it may move."""
    from rich.text import Text

    output = console()
    output.print(f"The model says {found.label} (margin {found.margin:.3g}).", markup=False)
    rows, columns = found.grid
    blown = found.map.repeat_interleave(found.patch[0], dim=0).repeat_interleave(found.patch[1], dim=1)
    left, right = _shaded(found.original.mean(dim=0)), _shaded(blown)
    wide = min(2, (output.width - 3) // (len(left[0]) + len(right[0])))  # characters of a pixel, as far as they fit
    for a, b in zip(left, right, strict=True) if wide else ():
        output.print(Text("".join(wide * c for c in a) + "   " + "".join(wide * c for c in b)))
    weakest = min(range(len(found.certified)), key=lambda k: found.certified[k])
    row, column = divmod(weakest, columns)
    told = f"{rows} x {columns} patches; the weakest, at row {row}, column {column}, may move by "
    told += f"{down(found.certified[weakest])} in {norm_name(found.norm)}"
    reached = [r for r in found.attacked if r is not None]
    told += f"; an attack needs {up(min(reached))} somewhere." if reached else "."
    output.print(told)
    output.print(f"{norm_name(found.norm)}, {found.chosen}, {found.seconds:.1f} s", style="dim")


def _shaded(values: Tensor) -> list[str]:
    low, high = float(values.min()), float(values.max())
    scaled = ((values - low) / max(high - low, 1e-300) * (len(SHADES) - 1)).round().long()
    return ["".join(SHADES[int(v)] for v in row) for row in scaled]
