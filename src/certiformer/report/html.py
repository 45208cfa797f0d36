"""One self-contained HTML file from a document: no network; all text goes in as data and comes out as text.

The page holds the results as JSON (`page.py`) and a script that shows as many sentences as fit on a screen. A policy in
the page allows that script and nothing else. Around the results stands what an auditor files with them (`evidence.py`).
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path

from ..text import visible
from .evidence import after, before, plural, text
from .page import page_data
from .records import Document
from .style import css
from .wording import MEANING, of_which

TITLES = {
    "certify": "Is the verdict proved?",
    "importance": "Which words matter?",
    "attack": "How small a change is enough?",
}
_TITLE = "How far may each word move?"
_MEANINGS = {
    "certify": "Certified: proved; no change asked about changes the verdict. Refuted: one was found that does.",
    "importance": "The less a word may move, relative to the length of its embedding, the more it matters.",
    "attack": "Attacked: a change of this size that changes the verdict was found.",
}


def html(document: Document, *, folder: Path | None = None) -> str:
    """The report of everything in a document; certificates are linked as seen from a folder."""
    title = TITLES.get(document.command, _TITLE)
    count = plural(len(document.results), "sentence")
    meaning = f"{_MEANINGS.get(document.command, MEANING)} {of_which(document.settings)}".strip()
    return shell(
        f"{title} {count}, model {visible(document.model)}",
        f'<h1>{title}</h1><p class="soft">{count}, model {text(document.model)}, {text(document.created)}'
        f"</p><p>{text(meaning)}</p>{before(document)}"
        '<div id="app"></div>'
        "<noscript><p>The sentences are shown by a script, which this browser does not run.</p></noscript>"
        f"{after(document, folder)}",
        data=page_data(document),
        script="".join(map(asset, ("words.js", "page.js"))),
        sheet=css(),
    )


def shell(title: str, body: str, *, data: str, script: str, sheet: str) -> str:
    """A whole page around a body, with data for a script; a policy allows that script and that sheet alone."""
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(sheet)}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{sheet}</style></head>"
        f"<body><main>{body}</main>"
        f'<script type="application/json" id="data">{data}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def asset(name: str) -> str:
    """A script or style sheet of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
