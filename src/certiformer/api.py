"""The front door: a `Certifier` owns a model's copy and all that is cached of it; the functions make one and ask it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from .attack import AttackResult
from .attack import attack as find_changes
from .core.names import Checked
from .errors import CertiformerError, InputError, ModelError, UnsupportedError
from .models import Model, load
from .options import (
    AttackCall,
    AttackQuestion,
    BoundsCall,
    BoundsQuestion,
    CertifyCall,
    CertifyQuestion,
    ImportanceCall,
    ImportanceQuestion,
    Machine,
    Options,
    Question,
    RadiusCall,
    RadiusQuestion,
    VerifyCall,
    VerifyQuestion,
    keywords,
    only,
)
from .properties import Never, Property, Robust, TopK, Within
from .questions import search, verdict
from .questions.bounds import Bounds
from .questions.bounds import bounds as bound
from .questions.estimate import Estimate, estimate
from .questions.importance import ImportanceResult
from .questions.importance import importance as rank
from .questions.inputs import Inputs
from .questions.scaling import scaled
from .questions.search import RadiusResult
from .questions.threads import plain, threads
from .questions.verdict import CertifyResult, Counterexample
from .questions.verify import VerifyResult, certify_within
from .questions.verify import verify as decide
from .questions.workspace import Workspace
from .results import Violation
from .sets import Ball, Box, Words

__all__ = [
    "AttackResult",
    "Ball",
    "Bounds",
    "Box",
    "Certifier",
    "CertiformerError",
    "CertifyResult",
    "Counterexample",
    "InputError",
    "Model",
    "ModelError",
    "Never",
    "Options",
    "Property",
    "RadiusResult",
    "Robust",
    "TopK",
    "UnsupportedError",
    "VerifyResult",
    "Violation",
    "Within",
    "Words",
    "attack",
    "bounds",
    "certify",
    "importance",
    "load",
    "radii",
    "radius",
    "verify",
]

AnyModel = Model | nn.Module | str | os.PathLike[str]
R = TypeVar("R")
log = logging.getLogger(__name__)


class Certifier:
    """A model and how to ask about it.

    The model is copied when this is made: what happens to the original later changes nothing here. Graphs are captured
    from the copy once for every length, and each answer first compares them with it. Several threads may ask at once.
    """

    def __init__(self, model: AnyModel, options: Machine | None = None, **changes: Any) -> None:
        """`changes` are fields of `Options`, as in `Certifier(model, splits=8)`."""
        self.options = replace(Options() if options is None else _options(options), **changes)
        self.model = model if isinstance(model, Model) else load(model)
        with plain():
            self.workspace = Workspace(self.model)
        log.info("opened %s", self.model)

    def __repr__(self) -> str:
        return f"Certifier({self.model.name!r}, {self.options})"

    @contextmanager
    def _answering(self) -> Iterator[None]:
        with plain(), threads(self.workspace.model, self.options.threads):
            yield

    @keywords(RadiusQuestion)
    def radius(self, inputs: Inputs, question: RadiusQuestion) -> RadiusResult:
        """The certified radius of every set of words."""
        return self.radii([inputs], **vars(question))[0]

    @keywords(RadiusQuestion)
    def radii(self, inputs: Sequence[Inputs], question: RadiusQuestion) -> tuple[RadiusResult, ...]:
        """As `radius`, for many inputs: those of one length are searched together."""
        with self._answering():
            if question.within is not None and not isinstance(inputs, str):
                return tuple(_told(scaled(self.workspace, x, question, self.options)) for x in inputs)
            return _told(search.radii(self.workspace, inputs, question, self.options))

    @keywords(CertifyQuestion)
    def certify(self, inputs: Inputs, question: CertifyQuestion) -> CertifyResult:
        """The verdict within a radius, or under substitutions."""
        with self._answering():
            certify = verdict.certify if question.within is None else certify_within
            return _told(certify(self.workspace, inputs, question, self.options))

    @keywords(BoundsQuestion)
    def bounds(self, inputs: Inputs, question: BoundsQuestion) -> Bounds:
        """The margins within a radius."""
        with self._answering():
            return _told(bound(self.workspace, inputs, question, self.options))

    @keywords(VerifyQuestion)
    def verify(self, inputs: Inputs | None, question: VerifyQuestion) -> VerifyResult:
        """Whether a property of the outputs holds on sets of inputs."""
        with self._answering():
            return _told(decide(self.workspace, inputs, question, self.options))

    @keywords(AttackQuestion)
    def attack(self, inputs: Inputs, question: AttackQuestion) -> AttackResult:
        """The smallest change of each set of words that an attack finds."""
        with self._answering():
            return _told(find_changes(self.workspace, inputs, question, self.options))

    @keywords(Question)
    def estimate(self, inputs: Sequence[Inputs], question: Question) -> Estimate:
        """How long the radii of some inputs should take, and how much memory."""
        with self._answering():
            return estimate(self.workspace, inputs, question, self.options)

    @keywords(ImportanceQuestion)
    def importance(self, inputs: Inputs, question: ImportanceQuestion) -> ImportanceResult:
        """The words, most important first."""
        with self._answering():
            return _told(rank(self.workspace, inputs, question, self.options))


def _told(found: R) -> R:
    """What was found, after a line of it for those who listen."""
    for each in found if isinstance(found, tuple) else (found,):
        log.info("found %s", each)
    return found


def _options(given: Machine) -> Options:
    """The options of a call, which has a question besides."""
    if isinstance(given, Options):
        return only(Options, given)
    return Options(device=given.device, threads=given.threads)


def _asked(call: Checked, kind: type[Checked]) -> dict[str, Any]:
    return vars(only(kind, call))


@keywords(RadiusCall)
def radius(model: AnyModel, inputs: Inputs, call: RadiusCall) -> RadiusResult:
    """The certified radius of every set of `words` words, or of the `positions` named.

    No change of a set's embeddings by less than its radius changes the prediction: this is proved, floating point
    included. method="auto" takes the tightest that `budget` allows; the result says what it was.
    """
    return Certifier(model, call).radius(inputs, **_asked(call, RadiusQuestion))


@keywords(RadiusCall)
def radii(model: AnyModel, inputs: Sequence[Inputs], call: RadiusCall) -> tuple[RadiusResult, ...]:
    """As `radius`, for many inputs: those of one length are searched together."""
    return Certifier(model, call).radii(inputs, **_asked(call, RadiusQuestion))


@keywords(CertifyCall, on_progress="progress")
def certify(model: AnyModel, inputs: Inputs, call: CertifyCall) -> CertifyResult:
    """Can the prediction change when each set of words moves by at most `eps`?

    With `substitutions` (word -> substitutes) instead of `eps`: under any combination of substitutes?
    """
    return Certifier(model, call).certify(inputs, **_asked(call, CertifyQuestion))


@keywords(BoundsCall)
def bounds(model: AnyModel, inputs: Inputs, call: BoundsCall) -> Bounds:
    """Bounds of the margins when each set of words moves by at most `eps` (a number, or one for each set)."""
    return Certifier(model, call).bounds(inputs, **_asked(call, BoundsQuestion))


@keywords(VerifyCall)
def verify(model: AnyModel, inputs: Inputs | None, call: VerifyCall) -> VerifyResult:
    """Does a `property` of the outputs hold for all inputs `within` a set, or a list of sets?

    A Box needs no input: its middle is looked at. Without a property the label must stay.
    """
    return Certifier(model, call).verify(inputs, **_asked(call, VerifyQuestion))


@keywords(AttackCall, method="attack_method", steps="attack_steps", dtype="attack_dtype", on_progress="progress")
def attack(model: AnyModel, inputs: Inputs, call: AttackCall) -> AttackResult:
    """The smallest change of the embeddings that changes the prediction, for each set of words, as far as it is found.

    Every counterexample is checked by a plain forward pass in float64.
    """
    return Certifier(model, call).attack(inputs, **_asked(call, AttackQuestion))


@keywords(ImportanceCall, on_progress="progress")
def importance(model: AnyModel, inputs: Inputs, call: ImportanceCall) -> ImportanceResult:
    """The words by how little they may move, relative to the length of their embedding: most important first."""
    return Certifier(model, call).importance(inputs, **_asked(call, ImportanceQuestion))
