"""`python -m certiformer_checker FILE [FOLDER]`: whether a certificate holds."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from certiformer_checker.case import Case
from certiformer_checker.certificate import Certificate, read
from certiformer_checker.folder import compare
from certiformer_checker.numbers import Wrong
from certiformer_checker.proof import Tell, check

UNREAD = "the graph is the claim: it was not compared with a model"


def claimed(certificate: Certificate) -> str:
    words, region = certificate.words, certificate.regions[0]
    names, tokens = words["model"]["labels"], words["input"]["tokens"]
    label = (
        names[certificate.label] if isinstance(names, list) and len(names) > certificate.label else certificate.label
    )
    listed = isinstance(tokens, list) and len(tokens) == len(certificate.x0)
    where = ", ".join(repr(tokens[i])[:40] if listed else str(i) for i in region.positions)
    if region.radius is None:
        what = f"{'any of the substitutes' if not certificate.claims else 'the hull of the substitutes'} of {where}"
    else:
        what = f"l{region.p:g} within {', '.join(f'{r:g}' for r in region.radius)} of {where}"
    return f"{label!r} by {certificate.margin.min():.6g} or more, {what}"


def judge(path: Path, folder: Path | None, exact: bool, tell: Tell) -> tuple[int, str]:
    """The exit code of one file (0 holds, 1 does not, 2 cannot be read) and a line about it."""
    code = 2
    try:
        certificate = read(path)
        code, kind = 1, Case
        note = UNREAD
        if folder is not None and certificate.words["model"]["kind"] == "folder":
            compare(certificate, folder)
            note = "the graph is that of the folder"
        if exact:
            from certiformer_checker.exact import ExactCase

            kind = ExactCase
        with np.errstate(all="ignore"):
            check(certificate, tell, kind)
        return 0, f"holds: {claimed(certificate)}; {note}"
    except Wrong as error:
        return code, f"{'does not hold' if code == 1 else 'cannot be read'}: {error}"
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return code, "cannot be read: operations, shapes and numbers do not fit together"
    except (OSError, MemoryError, ImportError) as error:
        return 2, f"cannot be checked: {str(error) or type(error).__name__}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="certiformer-check", description="Says whether certificates hold. Exit code 0: all do."
    )
    parser.add_argument("path", type=Path, help="a certificate, or a folder of them (*.cert)")
    parser.add_argument("model", type=Path, nargs="?", help="the model folder that they are about")
    parser.add_argument(
        "--exact", action="store_true", help="planes and the last sweep in ball arithmetic (python-flint)"
    )
    options = parser.parse_args(arguments)
    files = sorted(options.path.glob("*.cert")) if options.path.is_dir() else [options.path]
    if not files:
        print(f"{options.path}: no certificates (*.cert) there", file=sys.stderr)
        return 2
    codes, live = [], sys.stderr.isatty()
    for file in files:
        start = time.monotonic()

        def tell(text: str, file: Path = file) -> None:
            if live:
                print(f"\r\033[K{file.name}: {text}", end="", file=sys.stderr, flush=True)

        code, line = judge(file, options.model, options.exact, tell)
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        codes.append(code)
        print(f"{file.name:<24} {time.monotonic() - start:6.1f} s  {line}" if len(files) > 1 else line, flush=True)
    if len(files) > 1:
        print(f"{codes.count(0)} of {len(files)} certificates hold")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
