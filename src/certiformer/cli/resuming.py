"""Going on from the file of a run that was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .reading import Item

if TYPE_CHECKING:
    from ..report import Sentence


def earlier(
    out: Path | None, items: Sequence[Item], *, model: str, command: str, settings: dict[str, Any]
) -> tuple[dict[int, Sentence], float]:
    """The sentences that a run before this one finished, and the seconds it took."""
    from ..report import from_json

    if out is None or out.suffix != ".json":
        raise InputError("--resume goes on from a file: give --out FILE.json")
    if not out.exists():
        return {}, 0.0
    document = from_json(out.read_text(encoding="utf-8"), where=str(out))
    now = {"command": command, "model": model, **settings}
    then = {"command": document.command, "model": document.model, **document.settings}
    differ = [key for key in now if now[key] != then.get(key)]
    if differ:
        told = ", ".join(f"{key} {then.get(key)!r}" for key in differ)
        raise InputError(f"--resume: {out} was made with {told}: use the same, or another file")
    known = {sentence.text: sentence for sentence in document.results}
    return {k: known[item.text] for k, item in enumerate(items) if item.text in known}, document.seconds
