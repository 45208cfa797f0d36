"""The numbers in words. A certified radius is rounded down and an attacked one up, so that what is written is true."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from .records import Place, Run, Sentence

MEANING = (
    "Certified: proved; no change of the word's embedding by less than this can change the verdict. "
    "Attacked: a change of this size that does change it was found. The smallest change that does lies between the two."
)


def down(value: float | None, digits: int = 3) -> str:
    """A radius that is proved, rounded down."""
    return "–" if value is None else _rounded(value, digits, ROUND_FLOOR)


def up(value: float | None, digits: int = 3) -> str:
    """A radius that was reached, rounded up."""
    return "–" if value is None else _rounded(value, digits, ROUND_CEILING)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == 0:
        return "0"
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = float(exact.quantize(step, rounding=rounding))
    return (
        f"{rounded:#.{digits}g}".removesuffix(".") if 1e-4 <= abs(rounded) < 10**digits else f"{rounded:.{digits - 1}e}"
    )


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


def strengths(sentence: Sentence, run: Run) -> dict[int, float]:
    """How fragile each position is, from 0 (the strongest word) to 1 (the weakest), by its smallest radius."""
    radii: dict[int, float] = {}
    for place in run.places:
        value = place.certified if place.certified is not None else place.attacked
        if value is not None:
            for position in place.positions:
                radii[position] = min(value, radii.get(position, value))
    if not radii:
        return {}
    low, high = min(radii.values()), max(radii.values())
    if high <= low:
        return dict.fromkeys(radii, 0.5)
    return {position: (high - value) / (high - low) for position, value in radii.items()}
