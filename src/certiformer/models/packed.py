"""Files from a stranger as bytes: plain files alone, unpacked once if they are gzip, never more than a limit."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from ..errors import InputError

GZIP = b"\x1f\x8b"
ARCHIVES = {GZIP: "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7z"}
PIECE = 1 << 20


def read_packed(path: str | os.PathLike[str], what: str, *, most: int) -> bytes:
    """What a file holds, unpacked where it is gzip; an archive inside, or more than `most` bytes, is an error."""
    try:
        with Path(path).open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{what} {path}: expected a file, found a device or a pipe")
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{what} {path}: cannot be read: {error.strerror or error}") from None
    packed = content.startswith(GZIP)
    if packed and len(content) <= most:
        content = _unpacked(content, f"{what} {path}", most)
    if len(content) > most:
        raise InputError(f"{what} {path}: holds more than {most:,} bytes{' when unpacked' if packed else ''}")
    kind = next((name for start, name in ARCHIVES.items() if content.startswith(start)), None)
    if kind is not None:
        inside = f"a {kind} archive inside a gzip file" if packed else f"a {kind} archive"
        raise InputError(f"{what} {path}: expected the file itself, plain or as gzip, found {inside}")
    return content


def _unpacked(content: bytes, where: str, most: int) -> bytes:
    """The content of a gzip file, piece by piece, so that a small file cannot ask for all memory."""
    found = bytearray()
    try:
        while content:
            unpacker = zlib.decompressobj(wbits=31)
            while content and not unpacker.eof and len(found) <= most:
                found += unpacker.decompress(content, PIECE)
                content = unpacker.unconsumed_tail
            if len(found) > most:
                break
            if not unpacker.eof:
                raise InputError(f"{where}: the gzip file ends too early")
            content = unpacker.unused_data
    except zlib.error as error:
        raise InputError(f"{where}: cannot be unpacked: {error}") from None
    return bytes(found)
