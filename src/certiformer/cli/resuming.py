"""Going on from the file of a run that was stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, short
from .reading import Item, read_document

if TYPE_CHECKING:
    from ..report import Document, Sentence


def earlier(out: Path | None, items: Sequence[Item], now: Document) -> tuple[dict[int, Sentence], float]:
    """The sentences that a run before this one finished, and the seconds it took.

    It must have asked the same of the same model: command, settings, version and hashes are compared with those of
    `now`, and what differs is named.
    """
    if out is None or out.suffix != ".json":
        raise InputError("--resume goes on from a file: give --out FILE.json")
    if not out.exists():
        return {}, 0.0
    document = read_document(out, "--resume")
    differ = [
        f"{name} {short(then)} and not {short(asked)}"
        for name, asked, then in _compared(now, document)
        if asked != then
    ]
    if differ:
        raise InputError(f"--resume: {out} was made with {', '.join(differ)}: use the same, or another file")
    known = {s.text: s for s in document.results if all(run.complete for run in s.runs)}  # the others go on
    return {k: known[item.text] for k, item in enumerate(items) if item.text in known}, document.seconds


def _compared(now: Document, then: Document) -> Iterator[tuple[str, Any, Any]]:
    """All that two runs must agree in, by name, with the values of both."""
    yield "command", now.command, then.command
    yield "model", now.model, then.model
    yield "labels", now.labels, then.labels
    yield "certiformer", now.versions.get("certiformer"), then.versions.get("certiformer")
    for name in sorted({*now.hashes, *then.hashes}):
        yield f"{name} (SHA-256)", now.hashes.get(name), then.hashes.get(name)
    for name in (*now.settings, *(name for name in then.settings if name not in now.settings)):
        yield name, now.settings.get(name), then.settings.get(name)
