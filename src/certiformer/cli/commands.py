"""The commands by name. Each is a function in a file of its own; none imports torch before its arguments are read."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Annotated, Any

import typer

from .._version import __version__
from .app import app as serve
from .attack import attack
from .card import card
from .certify import certify
from .check import check
from .evaluate import evaluate
from .export import export
from .finetune import finetune
from .image import image
from .importance import importance
from .models import models
from .radius import radius
from .report import report
from .sweep import sweep
from .synonyms import synonyms
from .train import train
from .verify import verify

COMMANDS: dict[str, Callable[..., Any]] = {
    "radius": radius,
    "certify": certify,
    "check": check,
    "attack": attack,
    "importance": importance,
    "verify": verify,
    "image": image,
    "export": export,
    "report": report,
    "app": serve,
    "sweep": sweep,
    "synonyms": synonyms,
    "card": card,
    "models": models,
    "train": train,
    "finetune": finetune,
    "eval": evaluate,
}

app = typer.Typer(name="certiformer", pretty_exceptions_enable=False, rich_markup_mode="rich")
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


def _version(asked: bool) -> None:
    if asked:
        torch = next((f"torch {d.version}" for d in distributions(name="torch")), "no torch")
        typer.echo(f"certiformer {__version__} ({torch}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _root(
    shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Prove how far the words of a text may move before a Transformer changes its mind."""
