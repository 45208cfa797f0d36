"""The command line. Each command is a function in a file of its own, named in `COMMANDS`."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from .. import errors
from .attack import attack
from .certify import certify
from .evaluate import evaluate
from .importance import importance
from .models import models
from .radius import radius
from .report import report
from .train import train

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: dict[str, Callable[..., Any]] = {
    "radius": radius,
    "certify": certify,
    "attack": attack,
    "importance": importance,
    "report": report,
    "models": models,
    "train": train,
    "eval": evaluate,
}

app = typer.Typer(
    name="certiformer",
    help="Prove how far the words of a text may move before a Transformer changes its mind.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def _beside(entry: EntryPoint) -> Callable[[typer.Context], None]:
    """A command that is installed beside the package: it reads its arguments itself and returns the exit code."""

    def run(context: typer.Context) -> None:
        raise typer.Exit(entry.load()(context.args))

    return run


for _entry in entry_points(group="certiformer.commands"):
    app.command(
        _entry.name,
        help=f"See [bold]certiformer {_entry.name} --help[/bold].",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_beside(_entry))


@app.callback()
def _root() -> None:
    """Prove how far the words of a text may move before a Transformer changes its mind."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: a wrong call or file is one line on stderr and exit code 2, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what torch.export says to its own developers
            app(args=given, prog_name="certiformer", obj=shlex.join(["certiformer", *given]))
    except errors.CertiformerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
