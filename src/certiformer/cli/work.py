"""What the commands share: reading sentences, one after another with progress, and writing what was found."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import CertiformerError, InputError

if TYPE_CHECKING:
    import torch
    from rich.progress import Progress, TaskID

    from ..inputs import Prepared
    from ..models import Model
    from ..report import Document, Sentence

CONTRADICTION, INTERRUPTED = 3, 130
Fraction = Callable[[float], None]


@dataclass(frozen=True)
class Item:
    """A sentence and the line of the file it came from."""

    text: str
    line: int | None = None


def read_items(texts: Sequence[str] | None, file: str | None) -> list[Item]:
    """The sentences of the command line and of `--file`; none at all is an error."""
    items = [Item(text) for text in texts or ()]
    if file is not None:
        items += _read_file(file)
    if not items:
        where = "" if file is None else f" ({file} holds none)"
        raise InputError(f'no sentence was given{where}: put it in quotes, as in "a great film", or use --file')
    return items


def _read_file(file: str) -> list[Item]:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"--file {file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--file {file}: expected UTF-8 text, found other bytes at {error.start}") from None
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows or not (file.endswith(".tsv") or "\t" in rows[0][1]):
        return [Item(line.strip(), number) for number, line in rows]
    header = [cell.strip().lower() for cell in rows[0][1].split("\t")]
    named = [i for i, cell in enumerate(header) if cell in ("sentence", "text")]
    column = named[0] if named else len(header) - 1
    items = []
    for number, line in rows[1:] if named else rows:
        cells = line.split("\t")
        if len(cells) <= column:
            raise InputError(f"--file {file}, line {number}: expected {len(header)} columns, found {len(cells)}")
        items.append(Item(cells[column].strip(), number))
    return items


def open_model(name: str | None, device: str) -> tuple[Model, str]:
    """The model and the device to use it on."""
    from ..models import load
    from ..training import pick_device

    where = pick_device(device)
    return load(name), str(where)


def precision(name: str) -> torch.dtype:
    """The torch type of a name."""
    import torch

    return torch.float32 if name == "float32" else torch.float64


def chosen_sets(prepared: Prepared, given: Sequence[str] | None) -> list[tuple[int, ...]] | None:
    """`--positions` as sets: "3", "great", "2+3", "great+film", separated by commas."""
    if not given:
        return None
    sets: list[tuple[int, ...]] = []
    for written in (part.strip() for text in given for part in text.split(",")):
        members = [_places(prepared, member.strip(), written) for member in written.split("+")]
        if len(members) == 1:
            sets += [(place,) for place in members[0]]
            continue
        for name, places in zip(written.split("+"), members, strict=True):
            if len(places) > 1:
                at = ", ".join(map(str, places))
                raise InputError(f"--positions {written}: {name!r} stands at {at}: give the number")
        sets.append(tuple(places[0] for places in members))
    return sets


def _places(prepared: Prepared, name: str, written: str) -> list[int]:
    if name.lstrip("-").isdigit():
        return [int(name)]
    found = [i for i in prepared.words if prepared.tokens[i] == name.lower()]
    if not found:
        words = " ".join(f"{i}:{prepared.tokens[i]}" for i in prepared.words)
        raise InputError(f"--positions {written}: no word {name!r} in this sentence; the words are {words}")
    return found


def check_out(out: Path | None) -> None:
    """Refuse a file that could not be written, before the work rather than after it."""
    if out is None:
        return
    if out.suffix not in (".json", ".html"):
        raise InputError(f"--out {out}: expected a name that ends in .json or .html")
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out {out}: {'this is a folder' if out.is_dir() else f'no folder {out.parent}'}")


def collect(
    model: Model,
    items: Sequence[Item],
    one: Callable[[str, Fraction], Sentence],
    *,
    command: str,
    settings: dict[str, Any],
    quiet: bool,
    show: Callable[[Sentence], None] | None,
) -> Document:
    """Handle the sentences in turn. One that fails is reported and the rest go on, unless it is the only one; Ctrl-C
    keeps what is finished."""
    from ..attack import versions
    from ..report import Document, Failure

    began = time.perf_counter()
    results: list[Sentence] = []
    failures: list[Failure] = []
    complete = True
    try:
        with progress_bar(len(items), quiet=quiet) as bar:
            for number, item in enumerate(items):
                try:
                    result = one(item.text, partial(_advance, bar.advance, number))
                except CertiformerError as error:
                    if len(items) == 1 and item.line is None:
                        raise
                    failures.append(Failure(item.line, item.text, str(error)))
                    where = f"sentence {number + 1}" if item.line is None else f"line {item.line}"
                    with bar.hidden():
                        typer.echo(f"error: {where}: {error}", err=True)
                else:
                    results.append(result)
                    if show is not None:
                        with bar.hidden():
                            show(result)
                bar.advance(number + 1)
    except KeyboardInterrupt:
        complete = False
    return Document(
        command=command,
        model=model.name,
        labels=model.labels,
        settings=settings,
        versions=versions(),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.perf_counter() - began,
        results=tuple(results),
        failures=tuple(failures),
        complete=complete,
    )


def _advance(advance: Fraction, before: int, share: float) -> None:
    advance(before + share)


def finish(document: Document, *, json: bool, out: Path | None, quiet: bool) -> int:
    """Write the document where it was asked for; the exit code."""
    from ..report import to_json

    if json:
        typer.echo(to_json(document))
    if out is not None:
        write(document, out)
        if not quiet:
            typer.echo(f"written: {out}", err=True)
    if not document.complete:
        done = len(document.results)
        typer.echo(f"stopped; {done} finished sentence{'' if done == 1 else 's'} kept", err=True)
        return INTERRUPTED
    wrong = [run.error for sentence in document.results for run in sentence.runs if run.error is not None]
    for record in wrong:
        import json as encoder

        typer.echo(f"error: {record['message']}\n{encoder.dumps(record)}", err=True)
    if wrong:
        return CONTRADICTION
    return 2 if document.failures else 0


def write(document: Document, out: Path) -> None:
    """A document as JSON or HTML, by the name of the file."""
    from ..models.folder import write_bytes
    from ..report import html, to_json

    content = html(document) if out.suffix == ".html" else to_json(document) + "\n"
    try:
        write_bytes(out, content.encode())
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror or error}") from None


@dataclass(frozen=True)
class Bar:
    """A progress bar, or nothing: `advance` takes the sentences done, `hidden` clears the line while others print."""

    live: Progress | None = None
    task: TaskID | None = None

    def advance(self, done: float) -> None:
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=done)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        if self.live is not None:
            self.live.stop()
        yield
        if self.live is not None and not self.live.finished:
            self.live.start()


@contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Bar]:
    """How many sentences are done, with the time left; nothing when quiet or where there is no terminal."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield Bar()
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as live:
        yield Bar(live, live.add_task("sentences" if total > 1 else "bounding", total=total))
