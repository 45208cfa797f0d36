"""The app in a real browser: what a visitor sees, with the mouse, the keyboard and a narrow screen."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certiformer.report import Document, Place, Run, Sentence, html

from .conftest import LABELS, SLOW, TAG, Server

sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as started:
        running = started.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """The page, ready to be asked; nothing may be loaded from elsewhere, and nothing may go wrong on it."""
    context = browser.new_context(viewport={"width": 1100, "height": 900}, reduced_motion="reduce")
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    opened.on("request", lambda request: None if request.url.startswith(server.address) else wrong.append(request.url))
    opened.set_default_timeout(60_000)
    opened.goto(server.address)
    opened.wait_for_selector("#model option", state="attached")
    yield opened
    context.close()
    assert wrong == []


def ask(page: Any, text: str) -> None:
    """Type, press Enter, and wait for the end."""
    page.get_by_label("Sentence", exact=True).fill(text)
    page.keyboard.press("Enter")
    finished(page)


def finished(page: Any) -> None:
    page.locator("#status", has_text=re.compile("^Done")).wait_for(timeout=60_000)


def statuses(page: Any) -> list[str]:
    marked = [word.get_attribute("class") or "" for word in page.query_selector_all(".panels .w")]
    return [name for cls in marked for name in re.findall(r"s-(\w+)", cls)]


def test_a_sentence_is_certified_explained_moved_and_kept(page: Any, browser: Any, tmp_path: Path) -> None:
    ask(page, "a dull film")
    assert page.locator(".panels .heat").inner_text() == "a dull film"
    assert page.locator(".panels .w[class*=h]").count() == 3
    page.get_by_role("button", name=re.compile("^dull, certified")).click()
    told = page.locator(".tip").inner_text()
    for word in ("‘dull’", "No change of its embedding by less than", "gives ‘positive’", "Closest word"):
        assert word in told
    page.keyboard.press("ArrowRight")
    assert "‘film’" in page.locator(".tip").inner_text()
    page.get_by_label("Radius in l2", exact=True).press("Home")
    assert statuses(page) == ["certified"] * 3
    page.get_by_label("Radius in l2", exact=True).press("End")
    assert statuses(page) == ["refuted"] * 3
    field = page.get_by_label("Radius in l2, as a number")
    certified, attacked = re.findall(r"([\d.]+) / ([\d.]+)", page.locator(".bars li").nth(1).inner_text())[0]
    for radius, status in ((certified, "certified"), (attacked, "refuted"), (f"{certified}1", "open")):
        field.fill(radius)
        field.press("Enter")
        assert statuses(page)[1] == status, radius
    again = browser.new_page()
    again.goto(page.url)
    finished(again)
    assert again.get_by_label("Sentence", exact=True).input_value() == "a dull film"
    assert statuses(again) == statuses(page)
    again.close()
    page.get_by_role("button", name="Make a certificate").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile(r"\.cert$")).click()
    assert download.value.suggested_filename.startswith("certiformer-film-3-l2")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the report").click()
    report = tmp_path / "report.html"
    download.value.save_as(report)
    kept = browser.new_page()
    kept.goto(report.as_uri())
    assert kept.locator(".body .w").count() == 3
    assert "Reachability" in kept.inner_text("main")
    kept.get_by_role("button", name="at a radius").click()
    kept.get_by_label("Radius in l2", exact=True).press("Home")
    assert kept.locator(".body .w.s-certified").count() == 3
    kept.close()


def test_two_models_stand_side_by_side_and_markup_is_text(page: Any) -> None:
    """Hostile words, labels and names of models, and a sentence that is a script."""
    text = "film <script>"
    page.get_by_label("Compare with").select_option("host<i>le")
    ask(page, text)
    panels = page.locator(".panels section")
    assert panels.count() == 2
    for k in range(2):
        assert panels.nth(k).locator(".heat").inner_text() == text
    assert panels.nth(1).get_by_role("heading", name="host<i>le").count() == 1
    shown = panels.nth(1).inner_text()
    assert any(label in shown for label in LABELS)
    panels.nth(1).get_by_text("Table in l2").click()
    assert TAG in panels.nth(1).locator("table").inner_text()
    assert (
        page.evaluate("document.querySelectorAll('main img, main script, main i i, main iframe').length") == 1
    )  # the logo


def test_a_run_that_contradicts_itself_proves_nothing(browser: Any, tmp_path: Path) -> None:
    places = (Place((1,), ("film",), 0.5, 0.5, 0.4, None, "bad"),)
    run = Run("l2", places, "forward", "paper", attack="gradient", error={"message": "please report it"})
    one = Sentence("film", ("[CLS]", "film", "[SEP]"), (True, False, True), "good", 1, 1.0, None, None, None, (run,))
    report = tmp_path / "report.html"
    report.write_text(html(Document("radius", "m", ("bad", "good"), {}, {}, "now", 1.0, (one, one))), encoding="utf-8")
    page = browser.new_page()
    page.goto(report.as_uri())
    told = page.locator(".tip").first.inner_text()
    assert "nothing is proved here" in told
    assert "No change" not in told
    page.get_by_role("button", name="at a radius").click()
    page.get_by_label("Radius in l2", exact=True).press("Home")
    assert page.locator(".body .s-error").count() == 2
    assert page.locator(".body .s-certified").count() == 0
    assert "certified l2" not in page.inner_text("main")  # among the figures of all sentences
    page.close()


def test_long_work_is_stopped_and_the_page_goes_on(page: Any) -> None:
    page.get_by_label("Moving").select_option("3")
    page.get_by_label("Sentence", exact=True).fill(SLOW)
    page.keyboard.press("Enter")
    page.wait_for_selector(".panels progress")
    page.wait_for_selector(".panels .wait")
    page.get_by_role("button", name="Stop").click()
    finished(page)
    assert "this is what was found by then" in page.inner_text(".panels")
    page.get_by_label("Moving").select_option("1")
    ask(page, "a film")
    assert page.locator(".panels .w[class*=h]").count() == 2


def test_a_sentence_that_cannot_be_certified_says_why(page: Any) -> None:
    page.get_by_label("Sentence", exact=True).fill(SLOW + " thirteen")
    page.keyboard.press("Enter")
    page.wait_for_selector(".panels .bad")
    assert "13 words: at most 12 here" in page.inner_text(".panels .bad")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_does_not_scroll_sideways(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    ask(page, "a film " + "w" * 120)
    page.get_by_text("Table in l2").click()
    page.get_by_text("What do these numbers mean?").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
