"""Certificates of every kind, written by certiformer for tiny models; and files taken apart and put together again."""

from __future__ import annotations

import functools
import hashlib
import json
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REFERENCE = Path(__file__).resolve().parents[2] / "tests" / "reference"
TYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "BOOL": np.uint8}
# the folder of the model, the text and the question
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ball": ("sst_2_tiny", "a film", {"eps": 0.02, "positions": [1], "method": "backward"}),
    "anchors": ("sst_2_tiny", "a film", {"eps": 0.01, "positions": [1], "method": "backward-forward"}),
    "two": ("sst_2_tiny", "a film", {"eps": 0.002, "positions": [[1, 2]], "norm": "linf"}),
    "l1": ("sst_2_tiny", "a film", {"eps": 0.02, "positions": [1], "norm": "l1"}),
    "pieces": ("sst_2_tiny", "a film", {"eps": 0.06, "positions": [1], "splits": 4}),
    "shares": ("sst_2_tiny", "a film", {"eps": 0.054, "positions": [1], "steps": 6}),
    "standard": ("sst_1_small_standard", "a film", {"eps": 0.02, "positions": [1]}),
    "points": ("sst_2_tiny", "a film is", {"substitutions": {"is": ["was", "the"]}}),
}


def folder(kind: str) -> Path:
    return REFERENCE / KINDS[kind][0]


@functools.cache
def made(kind: str) -> bytes:
    """A certificate of this kind, as certiformer writes it."""
    cf = pytest.importorskip("certiformer", reason="certificates are written by certiformer, which is not installed")
    name, text, options = KINDS[kind]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "made.cert"
        result = cf.certify(str(REFERENCE / name), text, certificate=path, **options)
        assert result.status == "certified"
        return path.read_bytes()


def taken_apart(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Words and numbers of a certificate."""
    payload = zlib.decompress(data[66:])
    end = 8 + struct.unpack("<Q", payload[:8])[0]
    header = json.loads(payload[8:end])
    words = json.loads(header.pop("__metadata__")["certificate"])
    numbers = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        value = np.frombuffer(payload[end + start : end + stop], TYPES[entry["dtype"]]).reshape(entry["shape"])
        numbers[name] = value.astype(bool) if entry["dtype"] == "BOOL" else value.copy()
    return words, numbers


def packed(payload: bytes, size: int | None = None, version: bytes = b"1") -> bytes:
    head = b"CERTIFORMER CERTIFICATE " + version + b"\n" + struct.pack("<Q", len(payload) if size is None else size)
    return head + hashlib.sha256(payload).digest() + zlib.compress(payload, 1)


def put_together(words: Any, numbers: dict[str, np.ndarray]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"certificate": json.dumps(words)}}
    kinds = {
        np.dtype(np.float64): "F64",
        np.dtype(np.float32): "F32",
        np.dtype(np.int64): "I64",
        np.dtype(bool): "BOOL",
    }
    body = b""
    for name, value in numbers.items():
        data = np.ascontiguousarray(value).tobytes()
        place = [len(body), len(body) + len(data)]
        header[name] = {"dtype": kinds[value.dtype], "shape": list(value.shape), "data_offsets": place}
        body += data
    text = json.dumps(header).encode()
    return packed(struct.pack("<Q", len(text)) + text + body)
