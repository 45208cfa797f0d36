"""One question answered a few words at a time, so that there is something to look at while the rest is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..api import Certifier
from ..core.deadline import OUT_OF_TIME, Deadline
from ..errors import InputError
from ..norms import norm_name, norm_order
from ..options import AttackQuestion, Options, Question, settings
from ..questions.certificates import file_name
from ..questions.inputs import Prepared, prepare
from ..questions.positions import position_sets
from ..report import Run, Sentence, document, html, measure, sentence, to_json
from ..report.page import shown
from ..report.scale import largest
from .asking import Asked

Tell = Callable[..., None]  # a kind of message, and what it says
FIRST = 2  # sets of words that are answered first; then more at once, as long as that is quick
QUICK, SLOW = 0.5, 1.5  # seconds
OFTEN = 0.2  # seconds between two messages about how much is done
SURE = 0.1  # the share that must be done before the time left is taken from it rather than from the estimate


class Stopped(Exception):
    """The visitor does not wait any longer, or the time is up."""


@dataclass(frozen=True)
class Limits:
    """How much a question may be about, and how long it may take."""

    seconds: float
    longest: int
    most_sets: int


@dataclass
class Answer:
    """A question on its way. `stop` says whether nobody waits for it any longer."""

    certifier: Certifier
    asked: Asked
    limits: Limits
    tell: Tell
    stop: Callable[[], bool]
    run: Run | None = None
    sets: list[tuple[int, ...]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0
    estimated: float = 0.0

    def give(self, options: Options) -> None:
        """Tell what is found, and in the end a document of it; what is stopped has what was found before."""
        self.certifier.options = replace(options, budget=self.asked.budget, timeout=None)
        prepared = prepare(self.certifier.workspace, self.asked.text, device=self.certifier.options.device)
        self._check(prepared)
        self._plan()
        if self.asked.positions:
            self._certificate(prepared)
            return
        deadline, why = Deadline.after(self.limits.seconds), None
        self._show(prepared)
        try:
            for part in self._parts():
                if self.estimated > self.limits.seconds:  # then the search itself keeps what it has proved in time
                    self.certifier.options = replace(self.certifier.options, timeout=self._left(deadline))
                self._measure(part, deadline)
                self._show(prepared)
        except Stopped as stopped:
            why = str(stopped)
        self._finish(self._sentence(prepared), why, options)

    def _question(self, **more: Any) -> Question:
        return Question(norm=self.asked.norm, **(more or {"words": self.asked.words}))

    def _check(self, prepared: Prepared) -> None:
        count = len(prepared.movable)
        if count > self.limits.longest:
            raise InputError(f"the sentence has {count} words: at most {self.limits.longest} here")
        self.sets = position_sets(prepared, self._question())
        if len(self.sets) > self.limits.most_sets:
            raise InputError(
                f"words={self.asked.words}: {len(self.sets):,} sets of words, at most {self.limits.most_sets:,} here; "
                "take fewer words at once, or a shorter sentence"
            )

    def _plan(self) -> None:
        """How long it should take. What the budget does not allow for all words is not done for a few at a time."""
        estimate = self.certifier.estimate([self.asked.text], **vars(self._question()))
        self.estimated = estimate.seconds
        if self.certifier.options.method == "auto" and estimate.method == "backward-forward":
            self.certifier.options = replace(self.certifier.options, method="backward-forward")

    def _parts(self) -> Iterator[list[tuple[int, ...]]]:
        """The sets of words, a few at a time: more where those before were quick."""
        first, size = 0, FIRST
        while first < len(self.sets):
            began = time.monotonic()
            yield self.sets[first : first + size]
            took, first = time.monotonic() - began, first + size
            size = 2 * size if took < QUICK else max(1, size // 2) if took > SLOW else size

    def _certificate(self, prepared: Prepared) -> None:
        """The file of the proof for one set of words and the radius that was asked about."""
        where = tuple(map(int, self.asked.positions.split("+")))
        if where not in self.sets:
            raise InputError(f"positions={self.asked.positions!r}: no such set of words")
        name = file_name(prepared, where, norm_order(self.asked.norm))
        with TemporaryDirectory() as folder:
            file = Path(folder) / name
            found = self.certifier.certify(
                self.asked.text, eps=self.asked.eps, norm=self.asked.norm, positions=[list(where)], certificate=file
            )
            if found.certificate is None:
                raise InputError(f"radius={self.asked.radius}: {found.status}, so there is no certificate")
            content = file.read_bytes()
        self.tell("end", state="done", message=None, seconds=time.monotonic() - self.began, files={name: content})

    def _measure(self, part: list[tuple[int, ...]], deadline: Deadline) -> None:
        done = 0 if self.run is None else len(self.run.places)

        def advance(share: float) -> None:
            if self.stop():
                raise Stopped("stopped")
            if deadline.passed:
                raise Stopped(f"out of time after {self.limits.seconds:g} s")
            self._progress((done + share * len(part)) / len(self.sets))

        advance(0.0)
        (found,) = measure(
            self.certifier,
            self.asked.text,
            question=self._question(positions=[list(where) for where in part]),
            norms=(self.asked.norm,),
            attack=AttackQuestion(),
            substitutes=True,
            progress=advance,
        ).runs
        self.run = found if self.run is None else joined(self.run, found)

    def _left(self, deadline: Deadline) -> float:
        return max(1e-3, deadline.end - time.monotonic())

    def _progress(self, share: float) -> None:
        now = time.monotonic()
        if now - self.told >= OFTEN:
            self.told, taken = now, now - self.began
            left = taken * (1 - share) / share if share > SURE else self.estimated - taken
            known = share > SURE or left > 0  # an estimate that was too low says nothing any longer
            self.tell("progress", done=share, left=min(left, self.limits.seconds - taken) if known else None)

    def _sentence(self, prepared: Prepared) -> Sentence:
        empty = Run(norm=norm_name(norm_order(self.asked.norm)), places=())
        return sentence(prepared, runs=(self.run or empty,))

    def _show(self, prepared: Prepared) -> None:
        found = self._sentence(prepared)
        (run,) = found.runs
        left = len(self.sets) - len(run.places)
        content = shown(found, [run.norm], {run.norm: largest([run])}, costs=left == 0, left=left)
        self.tell("sentence", norm=run.norm, sentence=content, sets=len(self.sets), done=len(run.places))

    def _finish(self, found: Sentence, why: str | None, options: Options) -> None:
        """The document of what was found."""
        asked, model = self.asked, self.certifier.model
        whole = why is None and all(run.complete for run in found.runs)
        norms = [run.norm for run in found.runs]
        how = settings(
            self._question(),
            replace(options, budget=asked.budget),
            AttackQuestion(),
            device=str(options.device),
            norms=norms,
            attack=True,
        )
        made = document(
            self.certifier,
            [found],
            command="app",
            settings=how,
            hashes=model.hashes(),
            seconds=time.monotonic() - self.began,
            complete=whole,
            stopped=None if whole else why or next((r.stopped for r in found.runs if r.stopped), OUT_OF_TIME),
        )
        files = {"report.html": html(made).encode(), "report.json": to_json(made).encode()}
        self.tell("end", state="done" if why is None else "stopped", message=why, seconds=made.seconds, files=files)


def joined(run: Run, more: Run) -> Run:
    """Two runs over different sets of words as one."""
    places = (*run.places, *more.places)

    def total(name: str) -> float | None:
        values = [getattr(r, name) for r in (run, more)]
        return None if None in values else sum(values)

    calls = None
    if run.calls is not None and more.calls is not None:
        calls = (run.calls * len(run.places) + more.calls * len(more.places)) / len(places)
    return replace(
        run,
        places=places,
        calls=calls,
        seconds=total("seconds"),
        attack_seconds=total("attack_seconds"),
        substitute_seconds=total("substitute_seconds"),
        error=run.error or more.error,
        complete=run.complete and more.complete,
        stopped=run.stopped or more.stopped,
    )
