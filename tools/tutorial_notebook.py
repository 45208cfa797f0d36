"""docs/tutorial.ipynb from docs/tutorial.md: the words and the Python of the page, executed, with what came out.

    python tools/tutorial_notebook.py

What is about the command line stays out. The tests run the notebook and compare it with the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from snippets import ROOT, blocks

PAGE, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial.ipynb"
LEFT_OUT = re.compile(r"^## On the command line\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
END = "result"  # shows the sentence with its words coloured


def cells(page: str) -> list[tuple[str, str]]:
    """The kinds and texts of the cells of a page."""
    text = LEFT_OUT.sub("", page)
    found, at = [], 0
    for block in blocks(text):
        if block.language != "python":
            continue
        start, end = block.span
        found += [("markdown", text[at:start].strip()), ("code", block.body.strip())]
        at = end
    found += [("markdown", "## The sentence, coloured"), ("code", END), ("markdown", text[at:].strip())]
    return [(kind, written) for kind, written in found if written]


def made(page: str) -> Any:
    """A notebook that was not run yet."""
    import nbformat

    v4: Any = nbformat.v4
    notebook = v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for k, (kind, text) in enumerate(cells(page)):
        cell = v4.new_code_cell(text) if kind == "code" else v4.new_markdown_cell(text)
        cell["id"] = f"cell-{k}"
        notebook.cells.append(cell)
    return notebook


def executed(notebook: Any) -> Any:
    """The same notebook, run by a kernel."""
    from nbclient import NotebookClient

    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False).execute()
    notebook.metadata.pop("language_info", None)
    return notebook


if __name__ == "__main__":
    import nbformat

    nbformat.write(executed(made(PAGE.read_text(encoding="utf-8"))), NOTEBOOK)
