"""Questions that wait: each visitor's in their order, and visitors take turns, so that nobody blocks another."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from .asking import Asked

PATIENCE = 5.0  # seconds after which a question that nobody looks at is stopped
BEAT = 5.0  # seconds after which a stream says that it is still there


class Busy(Exception):
    """No place is left in the line."""


@dataclass(eq=False)
class Job:
    """A question, and all that was told about it. Names cannot be guessed: who knows one may look, and stop it."""

    asked: Asked
    visitor: str
    name: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    messages: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    ended: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    give_up: Callable[[Job], None] = lambda job: job.stop()  # what to do when nobody looks any longer
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _looking: int = 0

    def tell(self, kind: str, **content: Any) -> None:
        """Keep a message for all who look. Nothing follows the end."""
        if self.ended:
            return
        self.files |= {name: base64.b64decode(held) for name, held in content.pop("files", {}).items()}
        if kind == "end":
            self.ended, content["files"] = True, sorted(self.files)
        self.messages.append({"kind": kind, **content})
        self._news.set()
        self._news = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(map(len, self.files.values()))

    def stop(self) -> None:
        """Nobody wants the answer any longer."""
        self.stopping.set()

    async def follow(self, first: int = 0) -> AsyncIterator[tuple[int, dict[str, Any] | None]]:
        """The messages from a number on, as they come, and None now and then; when nobody looks, the job ends."""
        self._looking += 1
        try:
            while True:
                news = self._news
                while first < len(self.messages):
                    first += 1
                    yield first, self.messages[first - 1]
                if self.ended:
                    return
                try:
                    await asyncio.wait_for(news.wait(), BEAT)
                except asyncio.TimeoutError:
                    yield first, None
        finally:
            self._looking -= 1
            self.watch()

    def watch(self) -> None:
        """Stop it unless somebody looks before long."""
        if not self._looking and not self.ended:
            asyncio.get_running_loop().call_later(PATIENCE, self._lost)

    def _lost(self) -> None:
        if not self._looking and not self.ended:
            self.give_up(self)


class Line:
    """The questions that wait, at most so many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._free = 0  # workers that wait for a question
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(jobs) for jobs in self._waiting.values())

    def put(self, job: Job) -> None:
        """Take a question in, unless the line is full."""
        if len(self) - self._free >= self.most:
            raise Busy
        self._waiting.setdefault(job.visitor, deque()).append(job)
        self._tell()
        self._news.set()

    async def next(self) -> Job:
        """The next question that somebody still wants."""
        self._free += 1
        try:
            while True:
                while not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                job = self._take()
                self._tell()
                if not job.stopping.is_set():
                    return job
                job.tell("end", state="stopped", message="stopped")
        finally:
            self._free -= 1

    def drop(self, job: Job) -> None:
        """Take a question out that nobody wants any longer."""
        jobs = self._waiting.get(job.visitor, deque())
        if job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._waiting[job.visitor]
            job.tell("end", state="stopped", message="stopped")
            self._tell()

    def order(self) -> list[Job]:
        """Who comes when: a question of each visitor, then another of each."""
        rows, found = [list(jobs) for jobs in self._waiting.values()], []
        for k in range(max(map(len, rows), default=0)):
            found += [jobs[k] for jobs in rows if k < len(jobs)]
        return found

    def _take(self) -> Job:
        visitor, jobs = self._waiting.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._waiting[visitor] = jobs
        return job

    def _tell(self) -> None:
        for ahead, job in enumerate(self.order()):
            if not job.messages or job.messages[-1].get("ahead") != ahead:
                job.tell("waiting", ahead=ahead)
