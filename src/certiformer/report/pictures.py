"""Pictures in reports: pixels as PNG inside the page, a map of radii, and an original beside what was found."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..colours import LIGHT, absolute
from ..errors import InputError
from ..models.reading import label_name
from ..norms import norm_name
from ..numbers import down, up
from .evidence import text
from .style import css

if TYPE_CHECKING:
    from ..api import Certifier
    from ..models.model import Model
    from ..options import AttackQuestion, Question
    from ..results import VerifyResult

SIZE = 224  # pixels of a picture on the page
LEADS = {
    "certified": "Proved: what is asked holds for every picture that pixels may become.",
    "refuted": "Refuted: pixels may become the picture found, and what is asked does not hold there.",
    "unknown": "Not decided.",
    "error": "A proof and a counterexample contradict each other.",
}


def png(pixels: Tensor) -> bytes:
    """A picture `[h, w, 3]` of bytes as a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels.to(torch.uint8))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def shown(picture: Tensor, low: float, high: float) -> Tensor:
    """A picture `[c, h, w]` of one or three channels (else their mean) as bytes `[h, w, 3]`; `low` is black."""
    x = picture.double()
    x = x if x.shape[0] in (1, 3) else x.mean(dim=0, keepdim=True)
    scaled = ((x - low) / max(high - low, 1e-300)).clamp(0, 1)
    return (255 * scaled).round().expand(3, *x.shape[1:]).permute(1, 2, 0).to(torch.uint8)


def radius_map(radii: Sequence[float | None], grid: tuple[int, int]) -> Tensor:
    """Radii of patches, row after row, as coloured squares `[rows, columns, 3]`: the darker the weaker."""
    largest = max((r for r in radii if r is not None and math.isfinite(r)), default=0.0)
    colours = [LIGHT[absolute(r, largest) or 0][0] if r is not None else "#ffffff" for r in radii]
    rgb = [[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in colours]
    return torch.tensor(rgb, dtype=torch.uint8).reshape(*grid, 3)


def figure(pixels: Tensor, caption: str) -> str:
    """A picture on the page, and a line below it."""
    data = base64.b64encode(png(pixels)).decode()
    told = text(caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" width="{SIZE}" alt="{told}"><figcaption>{told}</figcaption>'
        "</figure>"
    )


def page(title: str, lead: str, figures: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    """A page of pictures and a table of facts: no script, nothing from anywhere else."""
    sheet = css() + (
        "figure{display:inline-block;vertical-align:top;max-width:240px;margin:0 1rem 1rem 0}"
        "figure img{image-rendering:pixelated;border:1px solid var(--line)}"
        "figcaption{max-width:14rem;color:var(--soft)}"
    )
    table = "".join(f"<tr><td>{text(name)}</td><td>{text(value)}</td></tr>" for name, value in rows)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{sheet}</style></head><body><main><h1>{text(title)}</h1>"
        f"<p>{text(lead)}</p><div>{''.join(figures)}</div><table>{table}</table></main></body></html>\n"
    )


def compared(original: Tensor, found: Tensor, told: str) -> list[str]:
    """An original, what was found, and the change between them, all on the same scale."""
    low = float(torch.minimum(original.min(), found.min()))
    high = float(torch.maximum(original.max(), found.max()))
    change = found - original
    most = float(change.abs().max())
    return [
        figure(shown(original, low, high), "the original"),
        figure(shown(found, low, high), told),
        figure(shown(change, -most, most), f"the change: grey is none, at most {most:.4g}"),
    ]


def facts(**named: Any) -> list[tuple[str, str]]:
    """The rows of a table, without those that are empty."""
    return [(name.replace("_", " "), str(value)) for name, value in named.items() if value is not None]


@dataclass(frozen=True, eq=False)
class Patches:
    """Of each patch of a picture, how far it may move and how far an attack had to move it; `worst` is the closest."""

    grid: tuple[int, int]
    patch: tuple[int, int]
    certified: tuple[float, ...]
    attacked: tuple[float | None, ...]
    label: str
    flipped: str | None  # what the model says of `worst`
    margin: float
    norm: float
    chosen: str
    seconds: float
    original: Tensor  # [c, h, w]
    worst: Tensor | None

    @property
    def map(self) -> Tensor:
        """The certified radii `[rows, columns]`."""
        return torch.tensor(self.certified, dtype=torch.float64).reshape(self.grid)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        plain = {**vars(self), "norm": norm_name(self.norm), "original": self.original.tolist()}
        return {**plain, "worst": None if self.worst is None else self.worst.tolist()}


def measure_patches(
    certifier: Certifier, picture: Tensor, question: Question, attack: AttackQuestion | None
) -> Patches:
    """Certified and attacked radii of every patch of a picture."""
    cut: Any = getattr(certifier.model.module, "cut", None)
    if cut is None:
        raise InputError(f"model {certifier.model.name!r} does not cut pictures into patches")
    proved = certifier.radius(picture, **vars(question))
    found = None if attack is None else certifier.attack(picture, **{**vars(attack), "positions": None})
    if len(proved.radii) != math.prod(cut.grid):
        raise InputError("positions: a map has every patch: leave them out")
    reached = [None] * len(proved.radii) if found is None else [r if math.isfinite(r) else None for r in found.radii]
    closest = min((k for k, r in enumerate(reached) if r is not None), key=lambda k: reached[k] or 0.0, default=None)
    point = None if found is None or closest is None else found.points[closest]
    flipped = None if found is None or closest is None else found.flipped[closest]
    return Patches(
        grid=cut.grid,
        patch=cut.patch,
        certified=proved.radii,
        attacked=tuple(reached),
        label=label_name(certifier.model, proved.label),
        flipped=None if flipped is None else label_name(certifier.model, flipped),
        margin=proved.margin,
        norm=proved.norm,
        chosen=proved.chosen,
        seconds=proved.seconds + (0.0 if found is None else found.seconds),
        original=picture,
        worst=None if point is None else cut.picture(point)[0],
    )


def patches_page(found: Patches, model: str) -> str:
    """One HTML file: the picture, the map of radii, and the closest counterexample beside the original."""
    low, high = float(found.original.min()), float(found.original.max())
    weakest, strongest = min(found.certified), max(found.certified)
    drawn = [figure(radius_map(found.certified, found.grid), f"certified radii: {down(weakest)} to {down(strongest)}")]
    if found.worst is not None:
        drawn = compared(found.original, found.worst, f"the closest found that is read as {found.flipped}") + drawn
    else:
        drawn = [figure(shown(found.original, low, high), "the original"), *drawn]
    reached = [r for r in found.attacked if r is not None]
    rows = facts(
        model=model,
        the_model_says=f"{found.label} (margin {found.margin:.4g})",
        norm=norm_name(found.norm),
        patches=f"{found.grid[0]} x {found.grid[1]} of {found.patch[0]} x {found.patch[1]} pixels",
        smallest_certified_radius=down(weakest),
        smallest_attacked_radius=up(min(reached)) if reached else None,
        method=found.chosen,
        seconds=f"{found.seconds:.1f}",
    )
    lead = "No change of one patch by less than its certified radius changes what the model says: this is proved."
    return page("How far may each patch move?", lead, drawn, rows)


def verdict_page(found: VerifyResult, original: Tensor, model: Model, asked: str) -> str:
    """One HTML file about a picture whose pixels move: the verdict, and what was found beside the original."""
    example = found.counterexample
    label = label_name(model, found.label)
    if example is None:
        low, high = float(original.min()), float(original.max())
        drawn = [figure(shown(original, low, high), f"the original, read as {label}")]
    else:
        cut: Any = getattr(model.module, "cut", None)
        point = example.point if cut is None else cut.picture(example.point)
        drawn = compared(original, point.reshape(original.shape), "the picture found")
    known = [least for least in found.least if math.isfinite(least)]
    rows = facts(
        model=model.name,
        the_model_says=label,
        asked=asked,
        verdict=found.status,
        sets=", ".join(f"{name}: {status}" for name, status in zip(found.sets, found.statuses, strict=True)),
        proved_distance_from_bad_outputs=down(min(known)) if known and example is None else None,
        outputs_found=None if example is None else ", ".join(f"{v:.6g}" for v in example.outputs),
        reason=found.reason,
        method=found.method,
        seconds=f"{found.seconds:.1f}",
    )
    return page(f"Pixels that move: {found.status}", LEADS[found.status], drawn, rows)
