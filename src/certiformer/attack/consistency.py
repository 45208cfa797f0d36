"""A proof and a counterexample cannot both be right: the certified radius never exceeds the attacked one."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .._version import __version__
from ..errors import CertiformerError


class ConsistencyError(CertiformerError):
    """A certified radius exceeds an attacked one; `record` has what is needed to reproduce it."""

    def __init__(self, record: Contradiction) -> None:
        super().__init__(record.message)
        self.record = record


@dataclass(frozen=True)
class Contradiction:
    """Everything needed to reproduce a certified radius above a counterexample's."""

    message: str
    model: str
    inputs: str | list[int] | None
    norm: str
    method: str | None
    relaxation: str | None
    positions: list[list[int]]
    certified: list[float]
    attacked: list[float]
    dtype: str | None
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"status": "error", **asdict(self)}


def versions() -> dict[str, str]:
    """What computed a result."""
    return {"certiformer": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def check_consistency(
    *,
    positions: Sequence[tuple[int, ...]],
    certified: Sequence[float],
    attacked: Sequence[float],
    model: str,
    norm: str,
    inputs: str | Sequence[int] | None = None,
    method: str | None = None,
    relaxation: str | None = None,
    dtype: str | None = None,
    raises: bool = False,
) -> Contradiction | None:
    """None when every certified radius is at most its attacked one; otherwise (or when one is NaN) the record of it."""
    wrong = [i for i, (c, a) in enumerate(zip(certified, attacked, strict=True)) if not c <= a]
    if not wrong:
        return None
    first = wrong[0]
    message = (
        f"certified radius {certified[first]:.6g} exceeds attacked radius {attacked[first]:.6g} at position(s) "
        f"{', '.join(map(str, positions[first]))} in {norm} for {len(wrong)} of {len(positions)} set(s): this is a "
        f"fault of certiformer, please report it with this record"
    )
    record = Contradiction(
        message=message,
        model=model,
        inputs=inputs if inputs is None or isinstance(inputs, str) else list(inputs),
        norm=norm,
        method=method,
        relaxation=relaxation,
        positions=[list(positions[i]) for i in wrong],
        certified=[certified[i] for i in wrong],
        attacked=[attacked[i] for i in wrong],
        dtype=dtype,
        versions=versions(),
    )
    if raises:
        raise ConsistencyError(record)
    return record
