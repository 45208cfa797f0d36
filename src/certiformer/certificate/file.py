"""The file: a line, a length, a hash, and a compressed safetensors file with JSON in its header."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from .. import strict
from ..errors import InputError, UnsupportedError

FIRST = b"CERTIFORMER CERTIFICATE 1\n"
HEAD = len(FIRST) + 8 + 32
MOST = 2**29  # bytes of the payload
WORDS = "certificate"  # the key of the JSON in the header


def packed(words: Mapping[str, Any], numbers: Mapping[str, Tensor]) -> bytes:
    """The bytes of a certificate."""
    tensors = {name: x.detach().to("cpu").clone().contiguous() for name, x in numbers.items()}
    payload = save(tensors, metadata={WORDS: json.dumps(words, ensure_ascii=False, allow_nan=False)})
    if len(payload) > MOST:
        raise UnsupportedError(f"a certificate of {len(payload):,} bytes: files hold at most {MOST:,}")
    head = len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest()
    return FIRST + head + zlib.compress(payload, 6)


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON and the numbers of a certificate, as it was written: nothing of them is checked."""
    if not content.startswith(FIRST) or len(content) < HEAD:
        raise InputError("expected a certificate of version 1, found something else")
    length = int.from_bytes(content[len(FIRST) : len(FIRST) + 8], "little")
    if length > MOST:
        raise InputError(f"expected a certificate of at most {MOST:,} bytes, found one of {length:,}")
    inflating = zlib.decompressobj()
    try:
        payload = inflating.decompress(content[HEAD:], length + 1)
        size = int.from_bytes(payload[:8], "little")
        if len(payload) != length or hashlib.sha256(payload).digest() != content[HEAD - 32 : HEAD]:
            raise InputError("expected a whole certificate, found a truncated or changed one")
        words = strict.loads(strict.loads(payload[8 : 8 + size].decode())["__metadata__"][WORDS])
        return words, load(payload)
    except (zlib.error, ValueError, KeyError) as error:
        raise InputError(f"expected a certificate, found something else ({error})") from None
