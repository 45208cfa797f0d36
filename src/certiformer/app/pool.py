"""The processes that answer, and the line before them."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ..errors import InputError, ModelError
from ..options import Options
from .asking import Asked
from .line import Job, Line
from .serving import Serving

KEPT = 200  # questions that are kept after they ended, for who looks again or takes the report
MOST_BYTES = 2**28  # of the files of these
GRACE = 3.0  # seconds that a process has to stop by itself
COMMAND = (sys.executable, "-m", "certiformer.app.worker")
LONGEST = 2**26  # bytes of a message
logger = logging.getLogger(__name__)


class Process:
    """A worker: started when it is needed, ended when it does not stop."""

    def __init__(self, setup: dict[str, Any], seconds: float) -> None:
        self._setup, self._seconds = setup, seconds
        self._process: asyncio.subprocess.Process | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> list[dict[str, Any]]:
        """Start it; what it says of the models, once they are open."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, limit=LONGEST)
        await self._send(self._setup)
        message = await self._receive()
        if message is None or message["kind"] != "ready":
            await self.end()
            raise ModelError("a process ended before it was ready" if message is None else message["message"])
        models: list[dict[str, Any]] = message["models"]
        return models

    async def answer(self, job: Job) -> None:
        """Ask it, and pass on what it says; afterwards the job has ended."""
        await self._send(asdict(job.asked))
        relay, stop = asyncio.ensure_future(self._relay(job)), asyncio.ensure_future(job.stopping.wait())
        try:
            await asyncio.wait({relay, stop}, timeout=self._seconds + GRACE, return_when=asyncio.FIRST_COMPLETED)
            if not relay.done():
                await self._send({"stop": True})
                await asyncio.wait({relay}, timeout=GRACE)
            if not relay.done():
                await _cancelled(relay)
                await self.end()
                told = "stopped" if stop.done() else f"out of time after {self._seconds:g} s"
                job.tell("end", state="stopped", message=told)
        finally:
            await _cancelled(relay)
            await _cancelled(stop)

    async def end(self) -> None:
        """End it, whatever it is doing."""
        ending, self._process = self._process, None
        if ending is not None:
            with suppress(ProcessLookupError):
                ending.kill()
            await ending.wait()

    async def _relay(self, job: Job) -> None:
        while not job.ended:
            message = await self._receive()
            if message is None:
                await self.end()
                job.tell(
                    "end", state="failed", message="the process that answered ended; it may have run out of memory"
                )
            else:
                job.tell(**message)

    async def _send(self, content: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(ConnectionError):
                self._process.stdin.write(json.dumps(content).encode() + b"\n")
                await self._process.stdin.drain()

    async def _receive(self) -> dict[str, Any] | None:
        if self._process is None or self._process.stdout is None:
            return None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        return found


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """End a task, if it has not ended; what it raised is raised here."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Pool:
    """Everything that is behind the page: the models, the line, the processes, and what was answered."""

    def __init__(self, serving: Serving, options: Options) -> None:
        self.serving, self.line = serving, Line(serving.queue)
        self.shelf = serving.shelf()
        self.models: list[dict[str, Any]] = []
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        limits = {name: getattr(serving, name) for name in ("seconds", "longest", "most_sets")}
        setup = {"models": self.shelf, "options": vars(options), "limits": limits}
        self._processes = [Process(setup, serving.seconds) for _ in range(serving.workers)]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the models in the first process, and let all of them answer; an error where a model does not open."""
        self.models = await self._processes[0].start()
        self._tasks = [asyncio.ensure_future(self._serve(process)) for process in self._processes]

    async def stop(self) -> None:
        for task in self._tasks:
            await _cancelled(task)
        for process in self._processes:
            await process.end()

    def ask(self, asked: Asked, visitor: str) -> Job:
        """A new question in the line; `Busy` where there is no place."""
        job = Job(asked, visitor, give_up=self.cancel)
        self.line.put(job)
        self._jobs[job.name] = job
        self._forget()
        job.watch()
        return job

    def _forget(self) -> None:
        """Let the oldest go, where there are too many or their files too large."""
        ended = deque(job for job in self._jobs.values() if job.ended)
        size = sum(job.size for job in ended)
        while len(ended) > KEPT or (ended and size > MOST_BYTES):
            oldest = ended.popleft()
            size -= oldest.size
            del self._jobs[oldest.name]

    def job(self, name: str) -> Job:
        found = self._jobs.get(name)
        if found is None:
            raise InputError("there is no such question, or it was too long ago")
        return found

    def cancel(self, job: Job) -> None:
        """End a question, whether it waits or is being answered."""
        job.stop()
        self.line.drop(job)

    async def _serve(self, process: Process) -> None:
        if not process.alive:
            with suppress(ModelError, OSError):
                await process.start()
        while True:
            job = await self.line.next()
            try:
                if not process.alive:
                    await process.start()
                await process.answer(job)
            except Exception as error:  # whatever it is, the next question finds a fresh process
                logger.exception("no process could answer")
                await process.end()
                job.tell("end", state="failed", message=f"no process could answer ({type(error).__name__})")
