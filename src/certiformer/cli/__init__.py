"""The command line. `main` imports the rest when it is called, so that even Ctrl-C at once ends in one line."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]

UNKNOWN, WRONG_CALL, CONTRADICTION, MACHINE, INTERRUPTED = 1, 2, 3, 4, 130  # exit codes; 1: refuted or unknown
clock: dict[str, float] = {}  # when the last command began, before its imports, and what Python's own start took
TRACEBACK = "CERTIFORMER_TRACEBACK"  # the variable that asks for the traceback of what was not foreseen


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: whatever goes wrong is one line on stderr and an exit code, never a traceback."""
    clock["started"] = _age() if arguments is None else 0.0
    clock["began"] = time.perf_counter() - clock["started"]
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit) or os.environ.get(TRACEBACK):
            raise
        code = _told(error)
    sys.exit(code)


def _age() -> float:
    """Seconds since this process began, where the system tells: more than `main` sees where others keep it busy."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        with open("/proc/self/stat", encoding="utf-8") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    return 0.0


def _run(given: list[str]) -> int:
    from .terminal import prepare_streams

    prepare_streams()
    import typer

    from .commands import app

    if os.environ.get("_CERTIFORMER_COMPLETE"):
        app(prog_name="certiformer")
    command = typer.main.get_command(app)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what torch.export says to its own developers
        try:
            with command.make_context("certiformer", given or ["--help"]) as context:
                command.invoke(context)
        except typer.Exit as done:
            return done.exit_code
    return 0


def _told(error: BaseException) -> int:
    """One line about what went wrong, and the exit code."""
    from ..text import visible

    line, code = _cause(error)
    with suppress(OSError, ValueError):
        print(visible(line), file=sys.stderr, flush=True)
    with suppress(OSError, ValueError):  # what is still in the buffer cannot be written: do not try again at the end
        sys.stdout.flush()
        return code
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _cause(error: BaseException) -> tuple[str, int]:
    from ..errors import CertiformerError, out_of_memory

    message = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "stopped", INTERRUPTED
    if isinstance(error, CertiformerError):
        return f"error: {message}", WRONG_CALL
    if hasattr(error, "format_message"):  # how typer says that options were not understood
        return f"error: {' '.join(error.format_message().split())}", WRONG_CALL
    if isinstance(error, BrokenPipeError):
        return "error: the output was closed before everything was written", MACHINE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror or message or type(error).__name__}", MACHINE
    if out_of_memory(error):
        return "error: out of memory; fewer words at once, a shorter text or a smaller model need less", MACHINE
    told = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"error: unexpected {told}; please report it with the output of {TRACEBACK}=1", MACHINE
