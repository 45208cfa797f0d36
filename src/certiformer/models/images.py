"""Pictures from files, as numbers that a model reads."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ..errors import InputError

MOST = 1 << 26  # bytes of a file
ENTRIES = 1 << 24


@dataclass(frozen=True)
class Scale:
    """What a model reads of pixels: `(x - mean) / std`, one number for all channels or one for each."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def read(self, pixels: Tensor) -> Tensor:
        """A picture `[channels, height, width]` as a model reads it."""
        return (pixels - _channels("mean", self.mean, pixels, 0.0)) / _channels("std", self.std, pixels, 1.0)

    def box(self, pixels: Tensor, eps: Fraction, *, clip: bool) -> tuple[Tensor, Tensor]:
        """The least and the greatest numbers that a model reads where no pixel moves by more than `eps`, those that are
        clipped between 0 and 1: rounded outward."""
        mean, std = (
            _channels(name, own, pixels, usual).expand_as(pixels).flatten().tolist()
            for name, own, usual in (("mean", self.mean, 0.0), ("std", self.std, 1.0))
        )
        lower, upper = [], []
        for x, m, s in zip(pixels.flatten().tolist(), mean, std, strict=True):
            low, high = Fraction(x) - eps, Fraction(x) + eps
            low, high = (max(low, Fraction(0)), min(high, Fraction(1))) if clip else (low, high)
            lower.append(_towards((low - Fraction(m)) / Fraction(s), -math.inf))
            upper.append(_towards((high - Fraction(m)) / Fraction(s), math.inf))
        ends = (torch.tensor(end, dtype=torch.float64).reshape(pixels.shape) for end in (lower, upper))
        return next(ends), next(ends)

    def radius(self, eps: Fraction) -> float:
        """How far `eps` is where the model reads it, if it is as far in every channel; rounded up."""
        if len(set(self.std)) > 1:
            raise InputError(f"std={list(self.std)}: a ball of pixels is none where channels differ")
        return _towards(eps / Fraction(*(self.std[:1] or (1.0,))), math.inf)


def read_picture(path: str | os.PathLike[str], *, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()) -> Tensor:
    """A picture `[channels, height, width]`: .npy as it is stored, others from 0 to 1, then `(x - mean) / std`."""
    return Scale(mean, std).read(read_pixels(path))


def read_pixels(path: str | os.PathLike[str]) -> Tensor:
    """A picture `[channels, height, width]`: .npy as it is stored, others from 0 to 1."""
    name = Path(path)
    try:
        if name.stat().st_size > MOST:
            raise InputError(f"picture {path}: holds more than {MOST:,} bytes")
        found = _stored(name) if name.suffix == ".npy" else _drawn(name)
    except OSError as error:
        raise InputError(f"picture {path}: cannot be read: {error.strerror or error}") from None
    found = found[None] if found.dim() == 2 else found
    if found.dim() == 4 and found.shape[0] == 1:
        found = found[0]
    if found.dim() != 3 or 0 in found.shape or not bool(torch.isfinite(found).all()):
        raise InputError(
            f"picture {path}: expected finite numbers [channels, height, width], found {list(found.shape)}"
        )
    return found


def _towards(value: Fraction, end: float) -> float:
    """A number as a float: itself, or the next one towards an end."""
    found = float(value)
    wrong = Fraction(found) < value if end > 0 else Fraction(found) > value
    return math.nextafter(found, end) if wrong else found


def _channels(name: str, values: tuple[float, ...], picture: Tensor, default: float) -> Tensor:
    given = values or (default,)
    if len(given) not in (1, picture.shape[0]) or (name == "std" and min(given) <= 0):
        raise InputError(f"{name}={list(given)}: expected one number, or {picture.shape[0]}, one for each channel")
    return torch.tensor(given, dtype=torch.float64).reshape(-1, 1, 1)


def _stored(path: Path) -> Tensor:
    try:
        values = numpy.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"picture {path}: {str(error).splitlines()[0]}") from None
    if not isinstance(values, numpy.ndarray) or values.dtype.kind not in "fiu" or values.size > ENTRIES:
        raise InputError(f"picture {path}: expected an array of numbers, at most {ENTRIES:,}")
    return torch.tensor(values.astype("float64"))


def _drawn(path: Path) -> Tensor:
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"picture {path}: .npy files are read without more; others need pip install pillow") from None
    try:
        with Image.open(path, formats=("PNG", "JPEG", "BMP", "GIF", "WEBP")) as image:
            if image.width * image.height > ENTRIES:
                raise InputError(f"picture {path}: has {image.width * image.height:,} pixels")
            values = numpy.asarray(image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB"), dtype="float64")
    except InputError:
        raise
    except Exception as error:  # what the many formats may raise has no list
        raise InputError(f"picture {path}: cannot be read: {str(error).splitlines()[0]}") from None
    pixels = torch.tensor(values) / 255
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
