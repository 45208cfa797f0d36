"""Finished work on disk: a line of JSON each, with a checksum, so that a kill loses at most what it fell in.

A folder holds `STEM*.jsonl` files. Every one is read; a run appends to one of them, which it locks. A line that a kill
tore, or that does not fit its checksum, is passed over and its work is done again. Stores of several machines are
joined by putting their files side by side: a key that comes twice is the same result.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .. import strict
from ..errors import InputError, short

Record = dict[str, Any]
MANIFEST = "manifest.json"
_SUM, _DIGITS = b', "sum": "', 16


class Store:
    """The finished work of a folder, by key; `with` opens it to be added to.

    It holds the keys alone: `records` reads the rest again. Lines of before there were checksums count where
    `unsummed` says so.
    """

    def __init__(self, folder: Path, *, stem: str = "rows", part: str = "", unsummed: bool = False) -> None:
        self.folder, self.stem, self.unsummed = folder, stem, unsummed
        self.path = folder / f"{stem}{part}.jsonl"
        self.damaged = 0  # lines that were torn or changed
        self._file: IO[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.keys = {record["key"] for record in self.records()}
        except OSError as error:
            raise InputError(f"{folder}: cannot hold the results: {error.strerror or error}") from None

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def __enter__(self) -> Store:
        try:
            self._file = self.path.open("ab")
            _lock(self._file)
            _end_line(self.path)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, found: Iterable[tuple[str, Record]]) -> None:
        """Keep finished work: it is on the disk when this returns. A disk that is full is left as it was before."""
        assert self._file is not None, "a store is added to inside `with`"
        new = [(key, record) for key, record in found if key not in self.keys]
        if not new:
            return
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(b"".join(_line(key, record) for key, record in new))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._forget(end)
            kept = f"{error.strerror}; {len(self.keys):,} finished are kept, the same command goes on"
            raise OSError(error.errno, kept, str(self.path)) from None
        self.keys.update(key for key, _ in new)

    def _forget(self, end: int) -> None:
        """Back to what was there before a write that failed; what is still buffered goes with the file."""
        assert self._file is not None
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.truncate(self.path, end)
        self._file = None

    def records(self) -> Iterator[Record]:
        """Every finished piece of work, each key once."""
        self.damaged, seen = 0, set()
        for path in sorted(self.folder.glob(f"{self.stem}*.jsonl")):
            with path.open("rb") as file:
                for line in file:
                    record = _record(line, self.unsummed)
                    if record is None:
                        self.damaged += bool(line.strip())
                    elif record["key"] not in seen:
                        seen.add(record["key"])
                        yield record


def _line(key: str, record: Record) -> bytes:
    body = json.dumps({"key": key, **record}, ensure_ascii=False, allow_nan=False).encode()
    return body[:-1] + _SUM + _digest(body) + b'"}\n'


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_DIGITS].encode()


def _record(line: bytes, unsummed: bool) -> Record | None:
    """What a line holds, where it is whole."""
    body, mark, end = line.rpartition(_SUM)
    summed = bool(mark) and end[_DIGITS:] == b'"}\n'
    if summed:
        line = body + b"}"
        if _digest(line) != end[:_DIGITS]:
            return None
    elif not unsummed:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("key"), str) else None


def _lock(file: IO[bytes]) -> None:
    """One writer a file. The lock ends with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # where there is no such lock
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise InputError(f"{file.name}: another run writes to it: wait for that, or take another folder") from None


def _end_line(path: Path) -> None:
    """A torn last line is closed, so that the next record starts on its own."""
    with path.open("rb+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def settle(folder: Path, manifest: Record) -> None:
    """Write down what a folder is about, once; refuse one that is about something else."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    if not path.exists():
        if any(folder.glob("rows*.jsonl")):
            raise InputError(f"{folder} holds rows, but no {MANIFEST}: put that there too, or take another folder")
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{MANIFEST}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            with suppress(FileExistsError):  # another shard was first: compare with what it wrote
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    agree(folder, manifest)


def agree(folder: Path, manifest: Record) -> None:
    """Refuse a folder that is about something else."""
    if not (folder / MANIFEST).exists():
        return
    then, now = read_manifest(folder), json.loads(json.dumps(manifest))
    differ = [f"{name} {_told(a)} and not {_told(b)}" for name, a, b in _differences(then, now)]
    if differ:
        raise InputError(f"{folder} holds another sweep, with {'; '.join(differ[:3])}: take another folder")


def read_manifest(folder: Path) -> Record:
    """What a folder is about."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: no sweep was begun there (no {MANIFEST})")
    try:
        found = strict.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object, found a {type(found).__name__}")
    return found


def _told(value: Any) -> str:
    return "none" if value is None else short(value, 60)


def _differences(then: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*now, *then)):
            yield from _differences(then.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now) and name == "models":
        for a, b in zip(then, now, strict=True):
            yield from _differences(a, b, f"model {a.get('name')}")
    elif isinstance(then, list) and isinstance(now, list) and name == "models":
        yield name, [model.get("name") for model in then], [model.get("name") for model in now]
    elif then != now:
        yield name, then, now
