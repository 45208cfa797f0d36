"""What the commands share: reading sentences, one after another with progress, and writing what was found."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
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

    from ..models import Model
    from ..questions.inputs import Prepared
    from ..report import Document, Sentence

CONTRADICTION, INTERRUPTED = 3, 130
WINDOW = 256  # sentences that are looked at together for groups of one length
MOST = 256  # sets of positions in a group: what a stopped run may lose
SMALL = 64  # width up to which a second thread gains nothing
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


def open_model(name: str | None, device: str, threads: int | None = None) -> tuple[Model, str]:
    """The model and the device to use it on, with as many threads as were asked for or as its size is worth."""
    import torch

    from ..models import load
    from ..training import pick_device

    where = pick_device(device)
    model = load(name)
    if threads is None and "OMP_NUM_THREADS" not in os.environ and model.facts.get("hidden_size", SMALL + 1) <= SMALL:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    return model, str(where)


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


@dataclass(frozen=True)
class Together:
    """Sentences that are handled several at a time.

    `key` says what those must share, and how many sets of positions a sentence has; `many` handles some.
    """

    key: Callable[[str], tuple[Hashable, int]]
    many: Callable[[Sequence[str], Fraction], Sequence[Sentence]]


def collect(
    model: Model,
    items: Sequence[Item],
    one: Callable[[str, Fraction], Sentence] | Together,
    *,
    command: str,
    settings: dict[str, Any],
    quiet: bool,
    show: Callable[[Sentence], None] | None,
    out: Path | None = None,
    resume: bool = False,
) -> Document:
    """Handle the sentences, those that can be together; what is found is shown in the order they were given in.

    One that fails is reported and the rest go on, unless it is the only one; Ctrl-C keeps what is finished. Where the
    results go to a JSON file, it is written after every group, and `resume` goes on from it.
    """
    from ..attack import versions
    from ..report import Document, Failure

    began = time.perf_counter()
    found: dict[int, Sentence] = {}
    failures: dict[int, Failure] = {}
    before, shown = 0.0, 0
    if resume:
        found, before = _earlier(out, items, model=model.name, command=command, settings=settings)

    def document(complete: bool) -> Document:
        return Document(
            command=command,
            model=model.name,
            labels=model.labels,
            settings=settings,
            versions=versions(),
            created=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            seconds=before + time.perf_counter() - began,
            results=tuple(found[k] for k in sorted(found)),
            failures=tuple(failures[k] for k in sorted(failures)),
            complete=complete,
        )

    def fail(number: int, error: CertiformerError) -> None:
        item = items[number]
        if len(items) == 1 and item.line is None:
            raise error
        failures[number] = Failure(item.line, item.text, str(error))
        where = f"sentence {number + 1}" if item.line is None else f"line {item.line}"
        with bar.hidden():
            typer.echo(f"error: {where}: {error}", err=True)

    complete = True
    try:
        with progress_bar(len(items), quiet=quiet) as bar:
            left = [k for k in range(len(items)) if k not in found]
            for group in _groups(items, left, one, fail):
                handled = len(found) + len(failures)
                advance = partial(_advance, bar.advance, handled, len(group))
                for number, result in _handled(items, group, one, advance):
                    if isinstance(result, CertiformerError):
                        fail(number, result)
                    else:
                        found[number] = result
                while shown in found or shown in failures:
                    if show is not None and shown in found:
                        with bar.hidden():
                            show(found[shown])
                    shown += 1
                bar.advance(len(found) + len(failures))
                if out is not None and out.suffix == ".json" and len(group) < len(items):
                    write(document(complete=False), out)
    except KeyboardInterrupt:
        complete = False
    return document(complete)


def _groups(
    items: Sequence[Item],
    left: Sequence[int],
    one: Callable[[str, Fraction], Sentence] | Together,
    fail: Callable[[int, CertiformerError], None],
) -> Iterator[list[int]]:
    """Which sentences to handle together: of one key, in the order of the first of them, no more than `MOST` sets."""
    if not isinstance(one, Together):
        yield from ([k] for k in left)
        return
    for start in range(0, len(left), WINDOW):
        groups: dict[Hashable, list[tuple[int, int]]] = {}
        for k in left[start : start + WINDOW]:
            try:
                key, sets = one.key(items[k].text)
            except CertiformerError as error:
                fail(k, error)
            else:
                groups.setdefault(key, []).append((k, sets))
        for members in groups.values():
            group: list[int] = []
            total = 0
            for k, sets in members:
                if group and total + sets > MOST:
                    yield group
                    group, total = [], 0
                group.append(k)
                total += sets
            yield group


def _handled(
    items: Sequence[Item], group: list[int], one: Callable[[str, Fraction], Sentence] | Together, advance: Fraction
) -> Iterator[tuple[int, Sentence | CertiformerError]]:
    """What was found for each of a group, or why nothing; where one spoils the group, each goes alone."""
    texts = [items[k].text for k in group]
    try:
        results = one.many(texts, advance) if isinstance(one, Together) else [one(texts[0], advance)]
    except CertiformerError as error:
        if len(group) == 1:
            yield group[0], error
            return
        for k in group:
            yield from _handled(items, [k], one, advance)
    else:
        yield from zip(group, results, strict=True)


def _earlier(
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


def _advance(advance: Fraction, before: int, count: int, share: float) -> None:
    advance(before + count * share)


def finish(document: Document, *, json: bool, out: Path | None, quiet: bool) -> int:
    """Write the document where it was asked for; the exit code."""
    from ..report import to_json

    if json:
        typer.echo(to_json(document))
    if out is not None:
        write(document, out)
        if not quiet:
            typer.echo(f"written: {out}", err=True)
    proved = sum(p.certified is not None for s in document.results for run in s.runs for p in run.places)
    if not quiet and proved and len(document.results) > 1:
        rate = proved / max(document.seconds, 1e-9)
        typer.echo(
            f"{len(document.results)} sentences: {proved:,} certified radii in {document.seconds:.1f} s, "
            f"{rate:.3g} a second",
            err=True,
        )
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
