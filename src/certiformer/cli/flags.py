"""Flags made from the fields of dataclasses: name, type, default, help and choices are written there alone."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from ..numbers import asked
from .terminal import logged

SHORT = {"model": "-m", "norm": "-p", "eps": "-e", "file": "-f", "out": "-o", "quiet": "-q", "verbose": "-v"}
PARSERS: dict[str, Callable[[str], Any]] = {"eps": asked, "at": asked}
PLAIN = (bool, int, float, str, Path)
K = TypeVar("K")
Command = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Given:
    """What was given on the command line: the arguments, and objects of the classes that the flags were made from."""

    texts: tuple[str, ...]
    values: Mapping[str, Any]
    said: frozenset[str]  # the flags that were given, and not left at their defaults

    @property
    def device(self) -> str:
        """The device that was named; without one, the best there is."""
        return str(self.values.get("device", "auto"))

    def __call__(self, kind: type[K], **changes: Any) -> K:
        """An object of a class, from the flags of its fields; one that was left out has its default."""
        own = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
        values = {name: value for name, value in self.values.items() if name in own}
        return kind(**{**values, **changes})


def command(
    *kinds: type,
    argument: Sequence[inspect.Parameter] | inspect.Parameter | Literal["texts"] = "texts",
    without: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> Callable[[Callable[[Given], int]], Command]:
    """Makes a function of what was given a command, with a flag for every field of some dataclasses; first ones win.

    `argument` stands before the flags: by default the sentences; there may be several or none. `without` names fields
    that say nothing here; `aliases` are further names of flags, by field. The function returns the exit code.
    """

    def decorate(function: Callable[[Given], int]) -> Command:
        flags: dict[str, inspect.Parameter] = {}
        for kind in kinds:
            for f, flag in _flags(kind, aliases or {}):
                if f.name not in without:
                    flags.setdefault(f.name, flag)

        def called(context: typer.Context, **given: Any) -> None:
            texts = (given.pop("texts", None) or ()) if argument == "texts" else ()
            values = {name: _value(value) for name, value in given.items() if value is not None}
            said = frozenset(name for name in flags if _said(context, name))
            with logged(bool(values.get("verbose"))):
                code = function(Given(tuple(texts), values, said))
            raise typer.Exit(code)

        before = [_texts()] if argument == "texts" else argument if isinstance(argument, Sequence) else [argument]
        parameters = [_context(), *before, *flags.values()]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        called.__doc__, called.__name__ = function.__doc__, function.__name__
        return called

    return decorate


def _context() -> inspect.Parameter:
    return inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def one_argument(name: str, help: str) -> inspect.Parameter:
    """An argument that must be there."""
    kind = Annotated[str, typer.Argument(help=help)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)


def _texts() -> inspect.Parameter:
    return many_arguments("texts", "TEXT", "One or several sentences.")


def many_arguments(name: str, shown: str, help: str) -> inspect.Parameter:
    """Arguments of which there may be any number."""
    kind = Annotated[list[str] | None, typer.Argument(metavar=shown, help=help)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _flags(kind: type, aliases: Mapping[str, str]) -> list[tuple[dataclasses.Field[Any], inspect.Parameter]]:
    hints = typing.get_type_hints(kind)
    shown = [f for f in dataclasses.fields(kind) if f.metadata.get("flag", "help" in f.metadata)]
    return [(f, _flag(f, hints[f.name], aliases.get(f.name))) for f in shown]


def _flag(f: dataclasses.Field[Any], hint: Any, alias: str | None) -> inspect.Parameter:
    kind, many = _kind(f.name, hint)
    long = f"--{f.name.replace('_', '-')}"
    names = [f"{long}/--no-{long[2:]}"] if kind is bool and f.default else [long]
    names += [alias] if alias else []
    names += [SHORT[f.name]] if f.name in SHORT else []
    required = f.default is dataclasses.MISSING
    parsed = f.name in PARSERS and kind is float
    more: dict[str, Any] = {"parser": PARSERS[f.name], "metavar": "NUMBER"} if parsed else {}
    option = typer.Option(*names, help=f.metadata["help"], **more)
    default = inspect.Parameter.empty if required else _shown(kind, f.default, many)
    optional = kind if required else kind | None
    annotation = Annotated[list[kind] | None if many else optional, option]  # type: ignore[valid-type]
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(name: str, hint: Any) -> tuple[Any, bool]:
    """The type of a flag, and whether it may be given several times."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [a for a in arguments if a is not type(None)]
        if str in parts:
            return str, False
        literal = next((a for a in parts if typing.get_origin(a) is Literal), None)
        if literal is not None:
            return _kind(name, literal)
        return _kind(name, parts[0]) if len(parts) == 1 else (str, False)
    if origin is Literal:
        return Enum(name, {str(value): value for value in arguments}, type=str), False
    if origin is tuple and Ellipsis not in arguments:
        return hint, False  # so many values, one after the other
    if origin is tuple:
        return _kind(name, arguments[0])[0], True
    if hint in PLAIN:
        return hint, False
    raise TypeError(f"no flag can be made of {name}: {hint}")


def _shown(kind: Any, default: Any, many: bool) -> Any:
    if many:
        return [str(value) for value in default]
    if default is None or kind in (bool, int, float, Path):
        return default
    return kind(default) if isinstance(kind, type) and issubclass(kind, Enum) else str(default)


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value
