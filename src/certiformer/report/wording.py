"""The numbers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..numbers import down, up, written
from .records import Place, Run, Sentence, Verdict

MEANING = (
    "Certified: proved; no change of the word's embedding by less than this can change the verdict. "
    "Attacked: a change of this size that does change it was found. The smallest change that does lies between the two."
)


_FUNCTIONS = {
    "real": "Proofs are about the exact, real-valued model; --arithmetic float32 is about the model as it runs.",
    "float32": "Proofs are about the model as it runs in float32, whatever the order of its sums.",
}


def of_which(settings: Mapping[str, Any]) -> str:
    """What the proofs of a document are about: the exact function, or its evaluation. Empty where nothing is proved."""
    return _FUNCTIONS.get(str(settings.get("arithmetic")), "")


def named(words: tuple[str, ...]) -> str:
    """'great', or 'great' and 'fun' together."""
    quoted = [f"'{word}'" for word in words]
    if len(quoted) == 1:
        return f"the word {quoted[0]} alone"
    return f"the words {', '.join(quoted[:-1])} and {quoted[-1]} together, each"


def explanation(place: Place, run: Run, label: str) -> str:
    """One sentence about one set of positions."""
    subject, norm = named(place.words), run.norm
    parts: list[str] = []
    if place.certified is not None:
        if place.certified > 0:
            parts.append(
                f"proved: no change of {subject} by less than {down(place.certified)} in {norm} can change the "
                f"verdict '{label}'"
            )
        else:
            parts.append(f"nothing could be proved about changes of {subject} in {norm}")
    if run.attack is not None:
        if place.attacked is None:
            parts.append("no attack succeeded" if parts else f"no attack on {subject} succeeded")
        elif place.replacement is not None:
            needed = f"'{place.replacement}' in its place, {up(place.attacked)} away, changes it"
            parts.append(needed if parts else f"{subject}: {needed}")
        else:
            needed = f"needs {up(place.attacked)}"
            parts.append(f"an attack {needed}" if parts else f"an attack on {subject} {needed} in {norm}")
    return "; ".join(parts)


def told(verdict: Verdict, label: str) -> str:
    """One sentence about one verdict."""
    if verdict.eps is None:
        return _told_words(verdict, label) if verdict.words else _told_set(verdict, label)
    subject = f"{named(verdict.words)} by up to {written(verdict.eps)} in {verdict.norm}"
    if verdict.status == "certified":
        return f"proved: no change of {subject} can change the verdict '{label}'"
    if verdict.status == "refuted":
        size = "" if verdict.radius is None else f" ({up(verdict.radius)} in {verdict.norm} is enough)"
        return f"a change of {subject} changes the verdict '{label}'{_becomes(verdict)}{size}"
    return _left_open(verdict, subject)


def _told_words(verdict: Verdict, label: str) -> str:
    """The same where words are replaced by others."""
    words = ", ".join(f"'{word}'" for word in verdict.words)
    if verdict.status == "certified":
        return f"proved: no choice of the substitutes given for {words}, all at once, changes the verdict '{label}'"
    if verdict.status == "refuted":
        pairs = zip(verdict.words, verdict.replacements or (), strict=False)
        changed = ", ".join(f"'{old}' by '{new}'" for old, new in pairs if old != new)
        size = "" if verdict.radius is None else f" (a move of {up(verdict.radius)} in {verdict.norm})"
        return f"these words replaced at once change the verdict '{label}'{_becomes(verdict)}: {changed}{size}"
    return _left_open(verdict, f"the substitutes given for {words}")


def _told_set(verdict: Verdict, label: str) -> str:
    """The same of a set that is no ball around words."""
    if verdict.status == "certified":
        return f"proved: no input of the set given changes the verdict '{label}'"
    if verdict.status == "refuted":
        return f"an input of the set given changes the verdict '{label}'{_becomes(verdict)}"
    return _left_open(verdict, "the set given")


def _becomes(verdict: Verdict) -> str:
    return "" if verdict.flipped is None else f" to '{verdict.flipped}'"


def _left_open(verdict: Verdict, subject: str) -> str:
    why = f" ({verdict.message})" if verdict.message else ""
    return f"neither proved nor refuted for {subject}{why}" if verdict.status == "unknown" else f"error{why}"


def weakest(run: Run) -> Place | None:
    """The set with the smallest certified radius, or the smallest attacked one where nothing was certified."""
    certified = [place for place in run.places if place.certified is not None]
    if certified:
        return min(certified, key=lambda place: place.certified or 0.0)
    attacked = [place for place in run.places if place.attacked is not None]
    return min(attacked, key=lambda place: place.attacked or 0.0) if attacked else None


def summary(sentence: Sentence, run: Run) -> str:
    """One sentence about the weakest set of a run."""
    place = weakest(run)
    if place is None:
        return f"no attack in {run.norm} succeeded"
    return explanation(place, run, sentence.label)
