"""Certificates of answers: which file each goes to, and what it is about."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..certificate import Subject, Substitutes, check, of_ball, of_points
from ..core.problem import Problem
from ..errors import InputError, UnsupportedError
from ..models.folder import write_bytes
from ..norms import norm_name
from ..results import CertifyResult, RadiusResult
from .inputs import Prepared, embed_ids
from .substitutes import Candidates

SUFFIX = ".cert"


def subject(prepared: Prepared) -> Subject:
    """The model and the input that a certificate is about."""
    return Subject(prepared.model, prepared.embeddings, prepared.text, prepared.tokens, prepared.ids, prepared.label)


def check_file(path: str | os.PathLike[str], problem: Problem, sets: int = 1) -> Path:
    """Where the certificate of what a problem proves is to go, if one can be written."""
    check(problem)
    file = Path(path)
    if sets != 1:
        raise InputError(f"certificate={str(path)!r}: expected one set of positions, found {sets:,}: name it")
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(
            f"certificate={str(path)!r}: {'this is a folder' if file.is_dir() else f'no folder {file.parent}'}"
        )
    return file


def check_folder(path: str | os.PathLike[str], problem: Problem) -> Path:
    """Where certificates of what a problem proves are to go, if any can be written; made where it is not there."""
    check(problem)
    folder = Path(path)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"certificates={str(path)!r}: expected a folder, or one to make: {error.strerror}") from None
    return folder


def file_name(prepared: Prepared, positions: tuple[int, ...], p: float) -> str:
    """The file of a set of positions of an input: the same whenever it is asked for."""
    told = prepared.text if prepared.text is not None else repr(prepared.embeddings.tolist())
    words = re.sub(r"[^a-z0-9]+", "-", " ".join(prepared.tokens[i] for i in positions[:4]).lower()).strip("-")
    where = "+".join(map(str, positions)) if len(positions) <= 4 else f"{positions[0]}+{len(positions) - 1}more"
    digest = hashlib.sha256(f"{told}\0{positions}".encode()).hexdigest()[:8]
    return "-".join(filter(None, (words[:40], where, norm_name(p), digest))) + SUFFIX


def checkable(problem: Problem) -> Problem:
    """A problem that proves by nothing but what a certificate can say."""
    return replace(problem, compiled=problem.compiled.plain, style=problem.style.checkable)


def write_radii(
    folder: Path, prepared: Prepared, result: RadiusResult, ways: Sequence[Problem], *, first: int
) -> RadiusResult:
    """A file for each set with a radius above 0, with their names in the result; `first` is the instance of the first
    set in the problems that the radii were proved with."""
    files: list[str | None] = []
    why: str | None = None
    for k, (positions, radius) in enumerate(zip(result.positions, result.radii, strict=True)):
        file = folder / file_name(prepared, positions, result.norm)
        try:
            content = of_ball(subject(prepared), ways, first + k, radius) if radius > 0 else None
        except UnsupportedError as error:
            content, why = None, why or str(error)
        if content is not None:
            write_bytes(file, content)
        files.append(None if content is None else str(file))
    return replace(result, certificates=tuple(files), unwritten=why)


def with_file(result: CertifyResult, file: Path | None, content: Callable[[], bytes]) -> CertifyResult:
    """A verdict, with the name of the file of its proof where one was asked for and the verdict is proved."""
    if file is None or result.status != "certified":
        return result
    write_bytes(file, content())
    return replace(result, certificate=str(file))


def vertices(prepared: Prepared, candidates: Candidates) -> Substitutes:
    """The substitutes of every position with their embeddings, the word itself first."""
    assert prepared.ids is not None
    ids = {i: [prepared.ids[i], *others] for i, others in candidates.ids.items()}
    embeddings = {}
    for i, own in ids.items():
        rows = torch.tensor([[*prepared.ids[:i], token, *prepared.ids[i + 1 :]] for token in own])
        found = embed_ids(prepared.model, rows.to(prepared.embeddings.device), dtype=torch.float64)
        embeddings[i] = found[:, i]
    return Substitutes(ids, embeddings)


def of_combinations(prepared: Prepared, candidates: Candidates, problem: Problem, margin: float) -> bytes:
    """That every combination of substitutes has a margin: each must be read word by word."""
    assert prepared.ids is not None
    for combination in candidates.combinations():
        placed = dict(zip(candidates.choices, combination, strict=True))
        expected = tuple(placed[i][1] if i in placed else own for i, own in enumerate(prepared.ids))
        if candidates.read(combination) != expected:
            raise UnsupportedError(
                f"no certificate can be written: read as other tokens together: {candidates.named(combination)}"
            )
    return of_points(subject(prepared), problem.compiled.graph, vertices(prepared, candidates), margin)
