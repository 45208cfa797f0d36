"""What the server answers, and what it refuses: through the real command and over a real connection."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import certiformer as cf
from certiformer.certificate.file import unpacked
from certiformer.numbers import down
from certiformer.report import from_json

from .conftest import SLOW, TAG, Server

ROOT = Path(__file__).resolve().parents[2]


def test_words_come_one_after_the_other_and_are_those_of_the_library(server: Server) -> None:
    name = server.ask("a dull film")
    told = list(server.follow(name))
    sentences = [m for m in told if m["kind"] == "sentence"]
    assert [m["done"] for m in sentences] == [0, 2, 3]
    assert sentences[0]["sentence"]["label"] == "negative"
    assert told[-1]["kind"] == "end"
    assert told[-1]["state"] == "done"
    run = sentences[-1]["sentence"]["runs"]["0"]
    expected = cf.radius("sst-1", "a dull film", tolerance=0.05)
    shown = [float(radius) for radius in run["certified"].split()]
    assert shown == pytest.approx(expected.radii, rel=0.06)
    assert run["words"][1][2] == "positive"
    status, report, headers = server("GET", f"/api/questions/{name}/report.html")
    assert status == 200
    assert headers["content-disposition"].startswith("attachment")
    assert "Stability" in report
    _, content, _ = server("GET", f"/api/questions/{name}/report.json")
    (found,) = from_json(json.dumps(content)).results
    assert [down(place.certified) for place in found.runs[0].places] == run["certified"].split()


def test_a_certificate_is_made_of_what_is_shown_and_holds(server: Server, tmp_path: Path) -> None:
    name = server.ask("a dull film", positions="2", radius="0.1")
    (file,) = ended(server, name)["files"]
    connection = server.open("GET", f"/api/questions/{name}/{file}")
    kept = tmp_path / file
    kept.write_bytes(connection.getresponse().read())
    words, _ = unpacked(kept.read_bytes())
    assert "dull" in json.dumps(words)
    if find_spec("certiformer_checker") is None and not (ROOT / "checker").is_dir():
        pytest.skip("the file was made; the second program, which checks it, is not installed")
    command = [sys.executable, "-m", "certiformer", "check", str(kept), "--model", "sst-1"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_who_lost_the_line_goes_on_where_it_was(server: Server) -> None:
    name = server.ask("a film")
    told = list(server.follow(name))
    assert list(server.follow(name, first=len(told) - 1)) == told[-1:]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "expected a question as JSON"),
        ("[1]", "expected a JSON object"),
        ("NaN", "expected a question as JSON"),
        (b"\xff\xfe", "expected a question as JSON"),
        ({"text": 3, "model": "sst-1"}, "text: expected a text"),
        ({"text": "a"}, "model: expected a text"),
        ({"text": "a", "model": "sst-2"}, "model='sst-2': expected one of sst-1"),  # bundled, but not on this shelf
        ({"text": "a", "model": "../../etc/passwd"}, "expected one of sst-1"),
        ({"text": "a", "model": "/etc"}, "expected one of sst-1"),
        ({"text": "a", "model": "hf:bert-base-uncased"}, "expected one of sst-1"),
        ({"text": "a", "model": "sst-1", "norm": "0"}, "norm='0': expected one of 1, 2, inf"),
        ({"text": "a", "model": "sst-1", "norm": ["2"]}, "norm=['2']: expected"),
        ({"text": "a", "model": "sst-1", "words": True}, "words=True: expected"),
        ({"text": "a", "model": "sst-1", "words": 10**400}, "expected"),
        ({"text": "a", "model": "sst-1", "budget": "endless"}, "budget='endless': expected"),
        ({"text": "a", "model": "sst-1", "device": "cuda"}, "'device': expected one of text"),
        ({"text": "a" * 481, "model": "sst-1"}, "at most 480 here"),
        ({"text": "a", "model": "sst-1", "positions": "1"}, "a certificate needs both"),
        ({"text": "a", "model": "sst-1", "positions": "1,2", "radius": "0.1"}, "positions='1,2': expected positions"),
        ({"text": "a", "model": "sst-1", "positions": "../x", "radius": "0.1"}, "positions='../x': expected positions"),
        ({"text": "a", "model": "sst-1", "positions": "1", "radius": "nan"}, "radius='nan': expected a radius"),
        ({"text": "a", "model": "sst-1", "positions": "1", "radius": 0.1}, "radius=0.1: a certificate needs both"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(server: Server, body: Any, message: str) -> None:
    status, content, _ = server("POST", "/api/questions", body)
    assert status == 400
    assert message in content["message"]


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (" ", {}, "holds no word"),
        (SLOW + " thirteen", {}, "13 words: at most 12 here"),
        ("a film", {"words": 3}, "words=3"),
        ("a film", {"positions": "0", "radius": "0.1"}, "positions='0': no such set of words"),
        ("a film", {"positions": "1", "radius": "9"}, "radius=9: refuted, so there is no certificate"),
    ],
)
def test_a_question_that_the_model_cannot_answer_ends_with_the_reason(
    server: Server, text: str, more: dict[str, Any], message: str
) -> None:
    end = list(server.follow(server.ask(text, **more)))[-1]
    assert end["state"] == "failed"
    assert message in end["message"]
    assert end["files"] == []


def test_requests_that_are_too_long_or_of_another_kind_are_refused(server: Server) -> None:
    assert server("POST", "/api/questions", "x" * 200_000)[0] == 413
    assert server("POST", "/api/questions", "{}", Content_Type="text/plain")[0] == 415
    assert server("PUT", "/api/questions", "{}")[0] == 405


def test_other_sites_and_other_names_are_refused(server: Server) -> None:
    question = {"text": "a film", "model": "sst-1"}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert server("POST", "/api/questions", question, **headers)[0] == 403
    for host in ("evil.example", f"evil.example:{server.port}", "[", ""):
        assert server("GET", "/", Host=host)[0] == 403
    assert server("GET", "/", Host=f"127.0.0.1:{server.port}")[0] == 200
    own = {"Origin": server.address.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert server("POST", "/api/questions", question, **own)[0] == 201


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/web/app.js",
        "/api/questions/x/events",
        "/static/",
        "/a\\b",
    ],
)
def test_no_file_can_be_named(server: Server, path: str) -> None:
    assert server("GET", path)[0] in (400, 404)


def test_no_file_of_an_answer_can_be_named_but_its_own(server: Server) -> None:
    name = server.ask("a film")
    list(server.follow(name))
    assert server("GET", f"/api/questions/{name}/..%2f..%2fetc%2fpasswd")[0] in (400, 404)


def test_every_answer_forbids_what_is_not_its_own(server: Server) -> None:
    for path in ("/", "/app.js", "/words.js", "/style.css", "/icon.svg", "/api/models", "/nothing"):
        headers = {name.lower(): value for name, value in server("GET", path)[2].items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert "http://" not in server("GET", "/")[1]
    assert "https://" not in server("GET", "/")[1]


def test_no_path_of_the_machine_is_told(server: Server) -> None:
    _, content, _ = server("GET", "/api/models")
    assert [model["name"] for model in content["models"]] == ["sst-1", "host<i>le"]
    assert "/" not in json.dumps(content).replace("<script>", "").replace("</script>", "").replace("</b>", "")


def test_hostile_words_and_labels_are_only_ever_data(server: Server) -> None:
    name = server.ask("the film and comedy", model="host<i>le")
    told = list(server.follow(name))
    run = told[-2]["sentence"]["runs"]["0"] if told[-2]["kind"] == "sentence" else {}
    assert TAG in json.dumps(run.get("words", [])) or any(TAG in json.dumps(m) for m in told)
    report = server("GET", f"/api/questions/{name}/report.html")[1]
    assert "<img" not in report
    assert "<script>alert" not in report


def ended(server: Server, name: str) -> dict[str, Any]:
    return list(server.follow(name))[-1]


def test_a_question_is_stopped_and_what_was_found_is_kept(server: Server) -> None:
    name = server.ask(SLOW, words=3)
    for message in server.follow(name):
        if message["kind"] == "sentence" and message["done"]:
            assert server("DELETE", f"/api/questions/{name}")[0] == 204
        if message["kind"] == "end":
            break
    assert message["state"] == "stopped"
    _, content, _ = server("GET", f"/api/questions/{name}/report.json")
    document = from_json(json.dumps(content))
    assert not document.complete
    assert document.stopped == "stopped"
    assert 0 < len(document.results[0].runs[0].places) < 220
    assert list(server.follow(server.ask("a film")))[-1]["state"] == "done"  # the process answers again


def test_visitors_who_leave_are_not_worked_for(server: Server) -> None:
    name = server.ask(SLOW, words=3)
    for message in server.follow(name):
        if message["kind"] == "sentence":
            break  # the connection is closed
    end = time.monotonic() + 30
    while time.monotonic() < end:  # looking itself would keep it alive: only the report tells
        if server("GET", f"/api/questions/{name}/report.json")[0] == 200:
            break
        time.sleep(0.5)
    assert ended(server, name)["state"] == "stopped"


def test_a_long_question_does_not_block_another_and_a_full_line_says_so(server: Server) -> None:
    long = [server.ask(SLOW, words=3)]
    assert ended(server, server.ask("a film"))["state"] == "done"
    names = [*long]
    status = 201
    for _ in range(6):  # two are answered, three may wait
        status, content, headers = server("POST", "/api/questions", {"text": SLOW, "model": "sst-1", "words": 3})
        if status != 201:
            break
        names.append(content["name"])
    assert status == 503
    assert "try again" in content["message"]
    assert headers["retry-after"] == "5"
    for name in names:
        server("DELETE", f"/api/questions/{name}")
    assert {ended(server, name)["state"] for name in names} == {"stopped"}
    assert ended(server, server.ask("a film"))["state"] == "done"
