"""Proofs as files that a second program checks (docs/certificates.md is their specification)."""

from .file import unpacked as unpacked
from .writing import Subject as Subject
from .writing import Substitutes as Substitutes
from .writing import check as check
from .writing import of_ball as of_ball
from .writing import of_hull as of_hull
from .writing import of_points as of_points

__all__ = ["Subject", "Substitutes", "check", "of_ball", "of_hull", "of_points", "unpacked"]
