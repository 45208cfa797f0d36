"""Certified accuracy under replaced words: of a file of texts with the substitutes of each word, for several budgets.

The file is a list of `{"label", "words", "candidates"}`; `candidates[i]` holds the word itself first and then what may
stand in its place, or is empty where the word may not change. A budget of k lets any k words be replaced at once.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..api import AnyModel, Certifier
from ..core.names import whole
from ..data.tables import read_json
from ..errors import InputError
from ..options import Options
from ..questions.budgets import replaced
from .store import Store

BUDGETS = (1, 2, 3, 4, 6)
TABLE = "synonyms.csv"


class Text(NamedTuple):
    """One text of the file: its label, its words, and what may stand in the place of each."""

    label: int
    words: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SynonymsResult:
    """What was found of every text; a share is of all of them."""

    model: str
    budgets: tuple[int, ...]
    records: tuple[dict[str, Any], ...]  # as `questions.budgets.Replaced`, with `index` and `seconds`
    total: int  # texts of the file that were asked about

    @property
    def clean(self) -> float:
        """The accuracy on the texts as they are."""
        return self._share([r["right"] for r in self.records])

    def certified(self, budget: int) -> float:
        """The share of texts that are answered rightly, and proved to be under this budget."""
        k = self.budgets.index(budget)
        return self._share([r["certified"][k] for r in self.records])

    def attacked(self, budget: int) -> float:
        """The share of texts that are answered rightly and that no attack changed under this budget: never less."""
        k = self.budgets.index(budget)
        return self._share([r["right"] and not r["refuted"][k] for r in self.records])

    def rows(self) -> list[dict[str, Any]]:
        """A row a budget, the texts as they are first."""
        every = [{"budget": b, "certified": self.certified(b), "attacked": self.attacked(b)} for b in self.budgets]
        return [{"budget": 0, "certified": self.clean, "attacked": self.clean}, *every]

    def to_csv(self) -> str:
        """The rows as a table."""
        out = io.StringIO()
        writer = csv.DictWriter(out, ["budget", "certified", "attacked"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return out.getvalue()

    def count(self, what: str) -> int:
        """A number added up over all texts: `words`, `substitutes`, `unknown`."""
        return sum(int(r[what]) for r in self.records)

    def _share(self, which: Sequence[bool]) -> float:
        return sum(which) / max(1, len(which))


def read_texts(path: str | os.PathLike[str]) -> tuple[Text, ...]:
    """The texts of a candidates file, plain or gzip."""
    file = Path(path)
    found = read_json(file, str(file))
    if not isinstance(found, list) or not found:
        raise InputError(f"{file}: expected a list of texts with label, words and candidates")
    return tuple(_text(file, i, entry) for i, entry in enumerate(found))


def _text(file: Path, index: int, entry: Any) -> Text:
    def words(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(w, str) and w.strip() == w != "" for w in value)

    good = isinstance(entry, dict) and type(entry.get("label")) is int and words(entry.get("words"))
    lists = entry.get("candidates") if good else None
    if not good or not isinstance(lists, list) or len(lists) != len(entry["words"]) or not all(map(words, lists)):
        raise InputError(f"{file}: text {index + 1}: expected label, words, and candidates for every word")
    return Text(entry["label"], tuple(entry["words"]), tuple(tuple(c[1:]) for c in lists))


def synonyms(
    model: AnyModel,
    candidates: str | os.PathLike[str] | Sequence[Text],
    *,
    budgets: Sequence[int] = BUDGETS,
    texts: int | None = None,
    out: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    progress: Callable[[SynonymsResult], None] | None = None,
) -> SynonymsResult:
    """The certified accuracy of a model under replaced words.

    `texts` takes the first ones only. With a folder `out`, what is finished is kept there, and the same call goes on.
    """
    given = candidates if not isinstance(candidates, (str, os.PathLike)) else read_texts(candidates)
    for budget in budgets:
        whole("budget", budget, least=1)
    if not budgets:
        raise InputError("budgets=(): expected at least one")
    if texts is not None:
        whole("texts", texts, least=1)
    asked, certifier = given[:texts], Certifier(model, options)
    ordered = tuple(sorted(set(budgets)))
    which = json.dumps([certifier.model.hashes(), ordered, repr(certifier.options)])
    keys = [hashlib.sha256(f"{which} {text}".encode()).hexdigest()[:32] + f"-{i}" for i, text in enumerate(asked)]
    store = None if out is None else Store(Path(out), stem="synonyms")
    known: dict[str, dict[str, Any]] = {} if store is None else {r["key"]: r for r in store.records()}

    def so_far() -> SynonymsResult:
        return SynonymsResult(certifier.model.name, ordered, tuple(known[k] for k in keys if k in known), len(asked))

    for key, text in zip(keys, asked, strict=True):
        if key not in known:
            known[key] = {"key": key, **_asked(certifier, text, ordered)}
            if store is not None:
                with store:
                    store.add([(key, {k: v for k, v in known[key].items() if k != "key"})])
            if progress is not None:
                progress(so_far())
    if out is not None:
        (Path(out) / TABLE).write_text(so_far().to_csv(), encoding="utf-8")
    return so_far()


def _asked(certifier: Certifier, text: Text, budgets: Sequence[int]) -> dict[str, Any]:
    started = time.perf_counter()
    found = replaced(certifier.workspace, text.words, text.candidates, text.label, budgets, certifier.options)
    return {**asdict(found), "seconds": round(time.perf_counter() - started, 3)}
