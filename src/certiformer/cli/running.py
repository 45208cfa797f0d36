"""The run that commands share: sentence after sentence, those that can be together, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.deadline import OUT_OF_TIME
from ..errors import CertiformerError
from .limits import Clock
from .progress import Bar, Fraction, progress_bar
from .reading import Item
from .resuming import earlier
from .terminal import say
from .writing import write

if TYPE_CHECKING:
    from ..api import Certifier
    from ..report import Document, Failure, Sentence

WINDOW = 256  # sentences that are looked at together for groups of one length
MOST = 256  # sets of positions in a group: what a stopped run may lose


@dataclass(frozen=True)
class Together:
    """Sentences that are handled several at a time.

    `key` says what those must share, and how many sets of positions a sentence has; `many` handles some.
    """

    key: Callable[[str], tuple[Hashable, int]]
    many: Callable[[Sequence[str], Fraction], Sequence[Sentence]]


One = Callable[[str, Fraction], "Sentence"]


@dataclass
class Job:
    """What a command does with its sentences, and what it has found so far.

    One that fails is reported and the rest go on, unless it is the only one; Ctrl-C keeps what is finished. Where the
    results go to a JSON file, it is written after every group.
    """

    certifier: Certifier
    items: Sequence[Item]
    how: One | Together
    command: str
    settings: dict[str, Any]
    show: Callable[[Sentence], None] | None = None
    out: Path | None = None
    found: dict[int, Sentence] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    before: float = 0.0  # seconds of the runs this one goes on from
    shown: int = 0
    parts: int = 1  # questions that each sentence takes, such as one a norm
    stopped: str | None = None

    def __post_init__(self) -> None:
        self.hashes = self.certifier.model.hashes()

    def resume(self) -> None:
        """Go on from what the file of an earlier run holds."""
        self.found, self.before = earlier(self.out, self.items, self._document(time.perf_counter(), complete=False))

    def run(self, *, quiet: bool) -> Document:
        """Handle the sentences; what is found is shown in the order they were given in."""
        began, complete = time.perf_counter(), True
        clock = Clock.of(self.certifier, self.parts)
        told = "sentences" if len(self.items) > 1 else "bounding"
        try:
            with progress_bar(told, len(self.items), quiet=quiet) as bar:
                self._show(bar)
                left = [k for k in range(len(self.items)) if k not in self.found]
                for group in self._groups(left, bar):
                    if clock.over() and self.found:
                        complete, self.stopped = False, OUT_OF_TIME
                        break
                    clock.share()
                    advance = partial(_advance, bar, self._handled(), len(group))
                    for number, result in self._results(group, advance):
                        if isinstance(result, CertiformerError):
                            self._fail(number, result, bar)
                        else:
                            self.found[number] = result
                    self._show(bar)
                    bar.advance(self._handled())
                    if self.out is not None and self.out.suffix == ".json" and len(group) < len(self.items):
                        write(self._document(began, complete=False), self.out)
        except KeyboardInterrupt:
            complete = False
        ended = [run.stopped or OUT_OF_TIME for s in self.found.values() for run in s.runs if not run.complete]
        if ended:
            complete, self.stopped = False, ", ".join(sorted(set(ended)))
        return self._document(began, complete=complete)

    def _handled(self) -> int:
        return len(self.found) + len(self.failures)

    def _document(self, began: float, *, complete: bool) -> Document:
        from ..report import document

        return document(
            self.certifier,
            [self.found[k] for k in sorted(self.found)],
            command=self.command,
            settings=self.settings,
            hashes=self.hashes,
            seconds=self.before + time.perf_counter() - began,
            failures=tuple(self.failures[k] for k in sorted(self.failures)),
            complete=complete,
            stopped=self.stopped,
        )

    def _show(self, bar: Bar) -> None:
        """Show what is finished, up to the first that is not."""
        while self.shown in self.found or self.shown in self.failures:
            if self.show is not None and self.shown in self.found:
                with bar.hidden():
                    self.show(self.found[self.shown])
            self.shown += 1

    def _fail(self, number: int, error: CertiformerError, bar: Bar) -> None:
        from ..report import Failure

        item = self.items[number]
        if len(self.items) == 1 and item.line is None:
            raise error
        self.failures[number] = Failure(item.line, item.text, str(error))
        where = f"sentence {number + 1}" if item.line is None else f"line {item.line}"
        with bar.hidden():
            say(f"error: {where}: {error}")

    def _groups(self, left: Sequence[int], bar: Bar) -> Iterator[list[int]]:
        """Which sentences go together: of one key, in the order of the first of them, no more than `MOST` sets."""
        if not isinstance(self.how, Together):
            yield from ([k] for k in left)
            return
        for start in range(0, len(left), WINDOW):
            keyed: dict[Hashable, list[tuple[int, int]]] = {}
            for k in left[start : start + WINDOW]:
                try:
                    key, sets = self.how.key(self.items[k].text)
                except CertiformerError as error:
                    self._fail(k, error, bar)
                else:
                    keyed.setdefault(key, []).append((k, sets))
            for members in keyed.values():
                yield from _bounded(members)

    def _results(self, group: list[int], advance: Fraction) -> Iterator[tuple[int, Sentence | CertiformerError]]:
        """What was found for each of a group, or why nothing; where one spoils the group, each goes alone."""
        texts = [self.items[k].text for k in group]
        try:
            if isinstance(self.how, Together):
                results = self.how.many(texts, advance)
            else:
                results = [self.how(texts[0], advance)]
        except CertiformerError as error:
            if len(group) == 1:
                yield group[0], error
                return
            for k in group:
                yield from self._results([k], advance)
        else:
            yield from zip(group, results, strict=True)


def _bounded(members: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Sentences with their numbers of sets, cut into groups of no more than `MOST` sets, or of one sentence."""
    group: list[int] = []
    total = 0
    for k, sets in members:
        if group and total + sets > MOST:
            yield group
            group, total = [], 0
        group.append(k)
        total += sets
    yield group


def _advance(bar: Bar, before: int, count: int, share: float) -> None:
    bar.advance(before + count * share)
