"""Pictures from files, as numbers that a model reads."""

from __future__ import annotations

import os
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ..errors import InputError

MOST = 1 << 26  # bytes of a file
ENTRIES = 1 << 24


def read_picture(path: str | os.PathLike[str], *, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()) -> Tensor:
    """A picture `[channels, height, width]`: .npy as it is stored, others from 0 to 1, then `(x - mean) / std`."""
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
    return (found - _channels("mean", mean, found, 0.0)) / _channels("std", std, found, 1.0)


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
