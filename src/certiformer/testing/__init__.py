"""Certificates in tests: `assert_certified` fails with what could not be proved, and says what could.

pytest finds the plugin by itself: `--certiformer-table` prints the radii, and JUnit files hold each question as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from ..norms import norm_name
from ..numbers import down, up
from ..options import CertifyCall, CertifyQuestion, Options, keywords, only
from .notes import Note, Place, noted, wanted

if TYPE_CHECKING:
    from ..api import AnyModel, Certifier
    from ..questions.inputs import Inputs
    from ..results import CertifyResult

__all__ = ["assert_certified"]


@keywords(CertifyCall)
def assert_certified(model: AnyModel | Certifier, text: Inputs, call: CertifyCall) -> CertifyResult:
    """Fail unless it is proved that no set of words, moved by up to `eps`, changes the model's answer.

    Takes what `cf.certify` takes: words=2, positions="great", norm="inf", steps=30, substitutions={...}. `label` is the
    answer to defend: give it where the answer has to be right, and not only stable. A `Certifier` in place of a model
    keeps what it captured from one test to the next. Nothing but a proof passes: `unknown` fails as `refuted` does.
    """
    __tracebackhide__ = True
    certifier = _certifier(model, call)
    result = certifier.certify(text, **vars(only(CertifyQuestion, call)))
    proved = result.status == "certified" and all(status == "certified" for status in result.statuses)
    note = Note(certifier.model.name, str(text), call.eps, norm_name(result.norm), result.status, _places(result))
    if call.eps is not None and (wanted() or not proved):
        note = note.with_radii(_radii(certifier, text, result, call))
    noted(note)
    if not proved:
        raise AssertionError(_message(note, result, certifier.model.labels))
    return result


def _certifier(model: AnyModel | Certifier, call: CertifyCall) -> Certifier:
    from ..api import Certifier

    if not isinstance(model, Certifier):
        return Certifier(model, call)
    if only(Options, call) != Options():
        raise InputError("assert_certified(certifier, ...): options such as steps= go to the Certifier that is made")
    return model


def _places(result: CertifyResult) -> tuple[Place, ...]:
    examples = [None if example is None else example.radius for example in result.counterexamples]
    rows = zip(result.rows(), examples, strict=True)
    return tuple(Place(row["positions"], row["words"], row["status"], attacked=r) for row, r in rows)


def _radii(
    certifier: Certifier, text: Inputs, result: CertifyResult, call: CertifyCall
) -> dict[tuple[int, ...], float]:
    """The certified radius of each set that was asked about, or only of those that were not proved."""
    parts = zip(result.positions, result.statuses, strict=True)
    sets = [list(where) for where, status in parts if wanted() or status != "certified"]
    found = certifier.radius(text, positions=sets, norm=call.norm, label=call.label)
    return dict(zip(found.positions, found.radii, strict=True))


def _message(note: Note, result: CertifyResult, labels: tuple[str, ...]) -> str:
    answer = labels[result.label] if result.label < len(labels) else f"class {result.label}"
    lines = [f"not certified for {note.model} {note.within}: {note.text!r} ({answer})"]
    for place in note.places:
        if place.status == "certified":
            continue
        told = f"  {place.status:<9} {place.words!r}, position {'+'.join(map(str, place.positions))}"
        if place.attacked is not None:
            told += f": a change of {up(place.attacked)} gives another answer"
        if place.certified is not None:
            told += f"; proved up to {down(place.certified)}"
        lines.append(told)
    if result.reason:
        lines.append(f"  {result.reason}")
    radii = [place.certified for place in note.places if place.certified is not None]
    if radii and min(radii) > 0 and result.status != "error":
        lines.append(f"  eps below {down(min(radii))} can be proved; steps=30 or splits=8 may prove more")
    return "\n".join(lines)
