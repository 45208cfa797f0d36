"""Operators that are only ever a few other ops. They have no row in the registry and no bounds of their own."""

from __future__ import annotations

from typing import Any, ClassVar

REWRITES: dict[str, type[Rewrite]] = {}


class Rewrite:
    """A way to lower some ATen operators to ops. A target named here takes precedence over an op's own."""

    targets: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = ""

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise TypeError("a rewrite says how it is lowered")


def rewrite(cls: type[Rewrite]) -> type[Rewrite]:
    """Enter a rewrite for its targets."""
    for target in cls.targets:
        if target in REWRITES:
            raise ValueError(f"two rewrites of {target}")
        REWRITES[target] = cls
    return cls


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str, default: Any) -> Any:
    """An argument of an ATen call, given by place or by name."""
    return args[index] if len(args) > index else kwargs.get(name, default)
