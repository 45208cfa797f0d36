"""The one progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Fraction = Callable[[float], None]


@dataclass(frozen=True)
class Bar:
    """A progress bar, or nothing: `advance` says how much is done, `hidden` clears the line while others print."""

    live: Progress | None = None
    task: TaskID | None = None

    def advance(self, done: float, *, total: float | None = None, told: str | None = None) -> None:
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=done, total=total, description=told)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        if self.live is not None:
            self.live.stop()
        yield
        if self.live is not None and not self.live.finished:
            self.live.start()


def counted(advance: Fraction) -> Callable[[int, int], None]:
    """The share that is done, from how much is done and of how much."""
    return lambda done, total: advance(done / max(1, total))


@contextmanager
def progress_bar(told: str, total: float | None, *, quiet: bool) -> Iterator[Bar]:
    """How much is done, with the time left; nothing when quiet or where there is no terminal."""
    from rich import progress as bars

    from .terminal import console

    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield Bar()
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=errors, transient=True) as live:
        yield Bar(live, live.add_task(told, total=total))
