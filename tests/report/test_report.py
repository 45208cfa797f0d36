"""Records, their JSON, the words around the numbers, and the HTML file."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certiformer.colours import DARK, LEVELS, LIGHT, absolute, relative
from certiformer.errors import InputError
from certiformer.questions.importance import Ranked
from certiformer.report import (
    Document,
    Failure,
    Place,
    Run,
    Sentence,
    Substitute,
    Verdict,
    from_json,
    html,
    to_json,
)
from certiformer.report.scale import levels
from certiformer.report.style import css
from certiformer.report.wording import explanation, summary, told

TEXT = 'A <script>alert("x")</script> & film'


def example() -> Document:
    words = ("a", "<script>", "film")
    places = tuple(
        Place((i + 1,), (w,), 0.1 * (i + 1), 0.05, None if i == 2 else 0.3 + 0.1 * i, None, None if i == 2 else "bad")
        for i, w in enumerate(words)
    )
    run = Run("l2", places, "forward", "paper", 7.5, 1.25, "gradient", 0.5)
    broken = dataclasses.replace(run, norm="linf", error={"status": "error", "message": "please report <b>"})
    sentence = Sentence(
        text=TEXT,
        tokens=("[CLS]", *words, "[SEP]"),
        special=(True, False, False, False, True),
        label="go<od",
        label_index=1,
        margin=1.5,
        ids=(2, 5, 1, 6, 3),
        spans=(None, (0, 1), (2, 10), (32, 36), None),
        note="read as [UNK]: <script>",
        runs=(run, broken),
        verdicts=(Verdict("refuted", 0.5, "l2", (1,), ("<i>",), -0.1, "bad", 0.4, ((1.0, 2.0),), None, "<u>"),),
        importance=(Ranked(1, "<q>", 0.1, 0.2, 1, 3.0, 2, 0.5, 0.6, 1, "<r>"),),
    )
    return Document(
        command="radius",
        model="m<x>",
        labels=("bad", "go<od"),
        settings={"norms": ["l2", "linf"], "method": "<m>", "relaxation": None},
        versions={"torch": "<2>"},
        created="2026-01-01 00:00 UTC",
        seconds=2.0,
        results=(sentence,),
        failures=(Failure(3, "<t>", "too <long>"),),
        complete=False,
    )


def test_json_comes_back_as_it_went():
    document = example()
    written = to_json(document)
    assert from_json(written) == document
    assert next(iter(json.loads(written))) == "schema"


def test_a_word_in_the_place_of_another_is_kept_in_json_and_shown():
    document = example()
    run = document.results[0].runs[0]
    near = dataclasses.replace(run.places[0], substitute=Substitute("<x>", 0.51234, "bad"))
    run = dataclasses.replace(run, places=(near, *run.places[1:]), substitute_seconds=0.1)
    document = dataclasses.replace(document, results=(dataclasses.replace(document.results[0], runs=(run,)),))
    assert from_json(to_json(document)) == document
    data = json.loads(re.search(r'id="data">(.*?)</script>', html(document), re.S)[1])
    assert data["sentences"][0]["runs"]["0"]["words"] == [["<x>", "0.513", "bad"], None, None]


def test_infinite_radii_are_null_in_json():
    document = example()
    place = dataclasses.replace(document.results[0].runs[0].places[0], attacked=float("inf"))
    run = dataclasses.replace(document.results[0].runs[0], places=(place,))
    sentence = dataclasses.replace(document.results[0], runs=(run,))
    written = json.loads(to_json(dataclasses.replace(document, results=(sentence,))))
    assert written["results"][0]["runs"][0]["places"][0]["attacked"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=99), "expected schema 1, found 99"),
        (lambda d: d.pop("model"), "'model' is missing"),
        (lambda d: d["results"][0].update(margin="much"), "results[0]: margin: expected float"),
        (lambda d: d["results"][0]["runs"][0].update(places={}), "places: expected a list"),
        (lambda d: d["results"][0]["spans"].append([1, 2, 3]), "expected 2 items"),
        (lambda d: d.update(complete=1), "complete: expected bool"),
    ],
)
def test_foreign_json_is_refused_with_the_place(change, message):
    content = json.loads(to_json(example()))
    change(content)
    with pytest.raises(InputError) as caught:
        from_json(json.dumps(content), where="r.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("r.json: ")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3"])
def test_what_is_not_a_document_is_refused(text):
    with pytest.raises(InputError):
        from_json(text)


def test_one_sentence_explains_the_numbers():
    run = example().results[0].runs[0]
    assert explanation(run.places[0], run, "good") == (
        "proved: no change of the word 'a' alone by less than 0.100 in l2 can change the verdict 'good'; "
        "an attack needs 0.300"
    )
    assert explanation(run.places[2], run, "good").endswith("; no attack succeeded")
    assert summary(example().results[0], run).startswith("proved: no change of the word 'a' alone")
    pair = dataclasses.replace(run.places[0], words=("a", "b"))
    assert "the words 'a' and 'b' together, each by less than" in explanation(pair, run, "good")
    nothing = dataclasses.replace(run.places[0], certified=0.0)
    assert explanation(nothing, run, "good").startswith("nothing could be proved")


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            Verdict("certified", 0.5, "l2", (1,), ("a",)),
            "proved: no change of the word 'a' alone by up to 0.5 in l2 can change the verdict 'good'",
        ),
        (
            Verdict("refuted", 0.5, "l2", (1,), ("a",), flipped="bad", radius=0.4),
            "a change of the word 'a' alone by up to 0.5 in l2 changes the verdict 'good' to 'bad' "
            "(0.401 in l2 is enough)",
        ),
        (
            Verdict("refuted", None, "linf", (1, 2), ("a", "b"), flipped="bad", radius=0.5, replacements=("a", "c")),
            "these words replaced at once change the verdict 'good' to 'bad': 'b' by 'c' (a move of 0.500 in linf)",
        ),
        (
            Verdict("certified", None, "linf", (1, 2), ("a", "b")),
            "proved: no choice of the substitutes given for 'a', 'b', all at once, changes the verdict 'good'",
        ),
        (
            Verdict("unknown", None, "linf", (1,), ("a",), message="why"),
            "neither proved nor refuted for the substitutes given for 'a' (why)",
        ),
    ],
)
def test_every_number_of_a_verdict_has_its_norm(verdict, sentence):
    assert told(verdict, "good") == sentence


def test_colours_are_on_a_fixed_scale():
    run = example().results[0].runs[0]  # 0.1, 0.2 and 0.3, each 0.05 of its embedding's length
    assert levels(run) == {1: 5, 2: 5, 3: 5}
    assert levels(run, most=0.3) == {1: 1, 2: 0, 3: 0}
    close = [dataclasses.replace(p, normalized=0.7 + 0.02 * i, certified=0.7) for i, p in enumerate(run.places)]
    assert levels(dataclasses.replace(run, places=tuple(close))) == {1: 1, 2: 1, 3: 1}  # 3 % are no difference
    attacked = [dataclasses.replace(p, normalized=None, certified=None) for p in run.places]
    assert levels(dataclasses.replace(run, places=tuple(attacked))) == {1: 0, 2: 0}
    nothing = [dataclasses.replace(p, normalized=0.0, certified=0.0) for p in run.places]
    assert set(levels(dataclasses.replace(run, places=tuple(nothing))).values()) == {LEVELS - 1}


@given(st.floats(min_value=1e-12, max_value=1e12), st.floats(min_value=0.97, max_value=1))
def test_a_few_percent_are_at_most_one_step_of_colour(value, share):
    assert 0 <= relative(value * share) - relative(value) <= 1
    assert 0 <= absolute(value * share, value) - absolute(value, value) <= 1


class Page(HTMLParser):
    """Checks that what is opened is closed, and collects tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "data", "srcset")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_report_is_one_file_and_text_is_never_markup():
    written = html(example())
    page = Page()
    page.feed(written)
    assert page.open == []
    assert not page.tags & {"link", "img", "iframe", "u", "q", "r", "long", "t", "i", "b"}
    assert page.links == []
    assert "http" not in written.replace("http-equiv", "")
    assert "url(" not in written
    assert "@import" not in written
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", written, re.S)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="data"', ""]
    data, code = scripts[0][1], scripts[1][1]
    assert "<" not in data
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function|fetch|XMLHttp|src|href", code
    )
    allowed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{allowed}'" in written
    (sentence,) = json.loads(data)["sentences"]
    assert sentence["text"] == TEXT
    assert sentence["runs"]["0"]["certified"] == "0.100 0.200 0.300"
    assert sentence["runs"]["0"]["attacked"] == "0.300 0.401 –"
    assert "please report <b>" in sentence["runs"]["1"]["error"]
    assert "go<od" in sentence["label"]
    for phrase in ("too <long>", "Stopped half way", "m<x>"):
        assert phrase in page.text
    assert 'name="viewport"' in written
    assert "prefers-color-scheme:dark" in written


def test_control_characters_do_not_reach_the_page():
    hostile = "a \x1b[31m\u202e\x9b 🎬 film"
    sentence = dataclasses.replace(
        example().results[0],
        text=hostile,
        label=hostile,
        note=hostile,
        spans=(None, (0, 1), (2, 8), (12, 16), None),
    )
    document = dataclasses.replace(example(), results=(sentence,), model=hostile, failures=(Failure(1, "", hostile),))
    written = html(document)
    assert not {"\x1b", "\u202e", "\x9b"} & set(written)
    (shown,) = json.loads(re.search(r'id="data">(.*?)</script>', written, re.S)[1])["sentences"]
    cuts, units = [int(n) for n in shown["cuts"].split()], shown["text"].encode("utf-16-le")
    ends = [2 * sum(cuts[: i + 1]) for i in range(len(cuts))]
    words = [units[ends[i - 1] : ends[i]].decode("utf-16-le") for i in range(1, len(ends), 2)]
    assert words == ["a", "␛[31m\ufffd", "film"]


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("radius", "How far may each word move?"),
        ("report", "How far may each word move?"),
        ("certify", "Is the verdict proved?"),
        ("importance", "Which words matter?"),
        ("attack", "How small a change is enough?"),
    ],
)
def test_every_question_has_its_title(command, title):
    written = html(dataclasses.replace(example(), command=command))
    assert f"<h1>{title}</h1>" in written
    assert f"<title>{title}" in written


def test_thousands_of_sentences_stay_small():
    places = tuple(Place((i + 1,), ("word",), 0.1 + i, 0.05 + i, 0.3 + i, None, "bad") for i in range(20))
    one = Sentence(
        text=" ".join(["word"] * 20),
        tokens=("[CLS]", *["word"] * 20, "[SEP]"),
        special=(True, *[False] * 20, True),
        label="good",
        label_index=1,
        margin=1.5,
        spans=(None, *((5 * i, 5 * i + 4) for i in range(20)), None),
        runs=(Run("l2", places, "forward", "paper", 7.5, 1.25, "gradient", 0.5),),
    )
    written = html(dataclasses.replace(example(), results=(one,) * 3000))
    assert len(written) < 3000 * 1200
    assert "3,000 sentences" in written
    assert "median 0.100, least 0.100" in written


def test_an_empty_document_is_still_a_page():
    page = Page()
    page.feed(html(dataclasses.replace(example(), results=(), failures=())))
    assert "0 sentences" in page.text


def test_an_auditor_finds_the_terms_of_the_standard_and_what_was_proved_of_what():
    document = dataclasses.replace(
        example(), hashes={"weights": "ab" * 32}, settings={"norms": ["l2"], "arithmetic": "real", "dtype": "float64"}
    )
    page = Page()
    page.feed(html(document))
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", html(document))
    assert headings == ["Domain", "Stability", "Sensitivity", "Reachability", "Arithmetic", "Record"]
    for phrase in (
        "ab" * 32,
        hashlib.sha256(json.dumps([TEXT]).encode()).hexdigest(),
        "one word at a time",
        "exact, real-valued model",
        "3 counterexamples found",  # two places of the run, and a verdict; the run that contradicts itself is left out
        "forward, paper relaxation",
        "no statement of conformity",
    ):
        assert phrase in page.text, phrase


@pytest.mark.parametrize(
    "settings", [{"norms": 3, "substitutions": [1], "words": {}}, {"norms": {"a": 1}, "positions": 0}]
)
def test_settings_of_any_kind_are_shown(settings):
    assert "Domain" in html(dataclasses.replace(example(), settings=settings))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ramp", [LIGHT, DARK])
def test_words_can_be_read_on_every_colour(ramp):
    assert min(contrast(back, ink) for back, ink in ramp) >= 4.5
    for part in css().split("prefers-color-scheme:dark"):
        named = dict(re.findall(r"--(\w+):(#\w{6});", part))
        assert contrast(named["ink"], named["sure"]) >= 4.5
        assert contrast(named["lostink"], named["lost"]) >= 4.5
        for ink in ("ink", "soft", "bad", "good"):
            assert contrast(named[ink], named["card"]) >= 4.5


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH")
@pytest.mark.parametrize("width", [500, 1100])
def test_a_browser_shows_it_without_scrolling_sideways(tmp_path, width):
    probe = "<script>document.title=document.documentElement.scrollWidth+' '+innerWidth+' '+\
    document.querySelectorAll('.body .w').length+' '+document.querySelector('.heat').textContent</script>"
    page = tmp_path / "report.html"
    long_word = "w" * 300
    sentence = dataclasses.replace(example().results[0], text=TEXT + " " + long_word)
    text = html(dataclasses.replace(example(), results=(sentence,)))
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)  # which does not let the probe in
    page.write_text(text.replace("</body>", f"{probe}</body>"))
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += ["--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    try:
        shown = subprocess.run(
            [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("chromium does not answer on this machine")
    found = re.search(r"<title>(\d+) (\d+) (\d+) (.*?)</title>", shown.stdout)
    if found is None:
        pytest.skip(f"chromium does not run on this machine: {shown.stderr[-200:]}")
    assert int(found[1]) <= int(found[2])
    assert int(found[3]) == 3
    assert unescape(found[4]) == TEXT + " " + long_word
