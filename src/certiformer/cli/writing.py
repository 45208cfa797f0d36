"""Where the results go: a file, stdout, and an exit code."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import InputError
from . import CONTRADICTION, INTERRUPTED, UNKNOWN, WRONG_CALL
from .terminal import console, say, unicode

if TYPE_CHECKING:
    from ..report import Document
    from .options import Target


def check_out(out: Path | None) -> None:
    """Refuse a file that could not be written, before the work rather than after it."""
    if out is None:
        return
    if out.suffix not in (".json", ".html"):
        raise InputError(f"--out {out}: expected a name that ends in .json or .html")
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out {out}: {'this is a folder' if out.is_dir() else f'no folder {out.parent}'}")


def write(document: Document, out: Path) -> None:
    """A document as JSON or HTML, by the name of the file."""
    from ..models.folder import write_bytes
    from ..report import html, to_json

    content = html(document, folder=out.parent) if out.suffix == ".html" else to_json(document) + "\n"
    write_bytes(out, content.encode())


def _tell_certificates(document: Document, *, quiet: bool) -> None:
    """Which files were written, and which are missing."""
    places = [place for sentence in document.results for run in sentence.runs for place in run.places]
    verdicts = [verdict for sentence in document.results for verdict in sentence.verdicts]
    named = [place.certificate for place in places] + [verdict.certificate for verdict in verdicts]
    files = [file for file in named if file is not None]
    if files and not quiet:
        told = files[0] if len(files) == 1 else f"{len(files):,} certificates, such as {files[0]}"
        say(f"written: {told}")
    for why in dict.fromkeys(run.unwritten for sentence in document.results for run in sentence.runs):
        if why is not None:
            say(f"unsupported: {why}")


def finish(document: Document, target: Target) -> int:
    """Write the document where it was asked for; the exit code."""
    from ..report import to_json
    from ..report.wording import of_which

    if target.json:
        typer.echo(to_json(document, ascii=not unicode()))
    elif not target.quiet and document.results and (told := of_which(document.settings)):
        console().print(told, style="dim")
    _tell_certificates(document, quiet=target.quiet)
    if target.out is not None:
        write(document, target.out)
        if not target.quiet:
            say(f"written: {target.out}")
    proved = sum(p.certified is not None for s in document.results for run in s.runs for p in run.places)
    if not target.quiet and proved and len(document.results) > 1:
        rate = proved / max(document.seconds, 1e-9)
        say(
            f"{len(document.results)} sentences: {proved:,} certified radii in {document.seconds:.1f} s, "
            f"{rate:.3g} a second"
        )
    if document.stopped is not None:
        done = sum(all(run.complete for run in s.runs) for s in document.results)
        say(f"{document.stopped}; sentences finished: {done}, begun: {len(document.results) - done}")
        return UNKNOWN
    if not document.complete:
        done = len(document.results)
        say(f"stopped; {done} finished sentence{'' if done == 1 else 's'} kept")
        return INTERRUPTED
    wrong = [run.error for sentence in document.results for run in sentence.runs if run.error is not None]
    for record in wrong:
        say(f"error: {record['message']}")
        say(encoder.dumps(record))
    if wrong:
        return CONTRADICTION
    return WRONG_CALL if document.failures else 0
