"""Labels are what the file says: numbers from 0, or names. Nothing is renumbered unless it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError, short
from .tables import LABEL_NAMES

OPTION = "--labels-from"


class Labels:
    """Reads the labels of a dataset, and remembers the numbers among them.

    `names` are the labels in their order, such as a model's; `labels_from` is the number of the first, if said.
    """

    def __init__(self, names: Sequence[str] = (), labels_from: int | None = None) -> None:
        if labels_from not in (None, 0, 1):
            raise InputError(f"{OPTION} {labels_from}: expected 0 or 1")
        self.names, self.labels_from = tuple(names), labels_from
        self.numbers: set[int] = set()
        self._known = {name.lower(): i for i, name in enumerate(names or ("negative", "positive"))}

    def index(self, written: str | None, where: str) -> int:
        """The place of a label that is written as a number, or by a name that the model or everybody knows."""
        label = (written or "").strip()
        if label.isascii() and label.isdigit() and len(label) < 5:
            return self._counted(int(label), where)
        for name in (label.lower(), LABEL_NAMES.get(label.lower(), "")):
            if name in self._known:
                return self._known[name]
        expected = (
            "such as 0 or 1" if not self.names else f"from 0 to {len(self.names) - 1}, or one of {self._listed()}"
        )
        raise InputError(f"{where}: expected a label {expected}, found {label[:30]!r}")

    def _counted(self, number: int, where: str) -> int:
        self.numbers.add(number)
        index = number - (self.labels_from or 0)
        if index < 0:
            raise InputError(f"{where}: the label is 0, but {OPTION} 1 was given")
        if self.names and index >= len(self.names) and self.labels_from is not None:
            raise InputError(f"{where}: label {number} is not one of the {len(self.names)} labels {self._listed()}")
        return index

    def check(self, where: str) -> None:
        """Refuse numbers that look as if they counted from 1, or are too large."""
        numbers = sorted(self.numbers)
        if self.labels_from is None and numbers and numbers[0] >= 1 and numbers[-1] >= 2:
            listed = ", ".join(map(str, numbers[:5])) + ("" if len(numbers) <= 5 else ", ...")
            raise InputError(
                f"{where}: the labels are {listed}, without 0: say {OPTION} 1 if they count from 1, else {OPTION} 0"
            )
        if self.labels_from is None and self.names and numbers and numbers[-1] >= len(self.names):
            raise InputError(
                f"{where}: label {numbers[-1]} is not one of the {len(self.names)} labels {self._listed()}"
            )

    def _listed(self) -> str:
        return short(list(self.names))
