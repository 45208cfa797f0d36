"""The picture of a coloured sentence, docs/images/sentence.png: a real report, photographed in Chromium.

Needs playwright (pip install playwright) and a Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

SENTENCE = "the plot is thin but the cast is wonderful"
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "sentence.png"
WORD = 3  # the one that is looked at
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main(*, picture: Path = PICTURE) -> int:
    """Certify the sentence, open its report, and keep the part with the words."""
    from playwright.sync_api import sync_playwright

    from certiformer import Certifier
    from certiformer.options import AttackQuestion
    from certiformer.report import document, html, measure

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("no Chromium on the PATH", file=sys.stderr)
        return 2
    certifier = Certifier("sst-2")
    found = measure(certifier, SENTENCE, attack=AttackQuestion(), substitutes=True)
    made = document(certifier, [found], command="report", settings={"norms": ["l2"]}, seconds=0.0)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        report = Path(folder) / "report.html"
        report.write_text(html(made), encoding="utf-8")
        running = started.chromium.launch(executable_path=browser, args=FLAGS)
        page = running.new_page(viewport={"width": 760, "height": 900}, device_scale_factor=1.5)
        page.goto(report.as_uri())
        page.locator(".body .w").nth(WORD).click()
        page.evaluate("document.querySelectorAll('.body details, .body > p.small').forEach(e => e.remove())")
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.locator(".card").screenshot(path=str(picture))
        running.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
