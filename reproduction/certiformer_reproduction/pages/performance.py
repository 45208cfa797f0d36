"""Measurements as Markdown: printed, or put into a page that names their files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench.run import read
from ..bench.tables import filled, markdown


def show(files: Sequence[Path], plots: Path | None = None, page: Path | None = None) -> None:
    """Print the Markdown of some documents, renew the tables of a page, and draw the plots of all of them."""
    documents = [read(file) for file in files]
    for document in documents:
        print(markdown(document))
    if page is not None:

        def named(file: str) -> dict[str, Any] | None:
            path = page.parent / file
            if not path.exists():
                return None
            documents.append(read(path))
            return documents[-1]

        page.write_text(filled(page.read_text(encoding="utf-8"), named), encoding="utf-8")
    if plots is not None:
        from ..bench.plots import draw

        for written in draw(documents, plots):
            print(f"written: {written}", file=sys.stderr)
