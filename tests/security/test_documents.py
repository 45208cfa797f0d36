"""JSON from a stranger (`report --from`, `--substitutions`): checked field by field, and shown as text only."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from certiformer.cli import main
from certiformer.errors import InputError
from certiformer.report import Document, from_json, html, to_json

TAG = "<script>alert(1)</script>"
EVIL = f"\"'><img src=x onerror=alert(1)>{TAG}&lt;\x1b[2J\u202e"
VERDICT = {"status": "unknown", "eps": 0.1, "norm": "l2", "positions": [1], "words": ["film"], "message": "why"}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real one, of a short sentence."""
    path = tmp_path_factory.mktemp("json") / "a.json"
    call = ["radius", "a film", "--model", "sst-1", "--method", "ibp", "--tolerance", "0.5", "--out", str(path)]
    with pytest.raises(SystemExit) as stopped:
        main([*call, "--quiet"])
    assert not stopped.value.code
    content: dict[str, Any] = json.loads(path.read_text())
    content["results"][0]["verdicts"] = [VERDICT]
    content["failures"] = [{"line": 3, "text": "x", "message": "y"}]
    content["results"][0]["note"] = "a note"
    return content


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the strings, numbers and nulls of a JSON value are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    spoilt = copy.deepcopy(document)
    inner: Any = spoilt
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return spoilt


def test_no_string_of_a_document_becomes_markup(document: dict[str, Any]) -> None:
    """Each string in turn, and all together; tags, quotes and characters that steer a terminal or turn text around."""
    strings = [path for path in leaves(document) if isinstance(at(document, path), str)]
    assert len(strings) > 20
    for path in strings:
        try:
            page = html(from_json(json.dumps(changed(document, path, EVIL))))
        except InputError:
            continue
        assert TAG not in page, path
        assert "<img" not in page, path
        assert "\x1b" not in page, path


def test_the_only_script_of_a_report_is_its_own() -> None:
    """It writes text, never markup; and the page forbids every other, and everything from anywhere else."""
    script = files("certiformer.report").joinpath("page.js").read_text(encoding="utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc", script) == []
    page = html(Document("radius", "m", ("a", "b"), {}, {}, "now", 1.0, ()))
    assert page.count("<script>") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@pytest.mark.parametrize("value", ["0.5", [0.5], {"a": 1}, True, "</style>", None, [], {}, -1, 10**30, ""])
def test_a_value_of_another_kind_is_refused_or_harmless(value: Any, document: dict[str, Any]) -> None:
    for path in leaves(document):
        try:
            page = html(from_json(json.dumps(changed(document, path, value))))
        except InputError:
            continue
        assert "</style><" not in page.replace("</style></head>", "")


def test_radii_are_numbers(document: dict[str, Any]) -> None:
    place = ("results", 0, "runs", 0, "places", 0, "certified")
    for value in ("0.5", True, [1.0], {}):
        with pytest.raises(InputError, match="certified"):
            from_json(json.dumps(changed(document, place, value)))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(number: str, document: dict[str, Any]) -> None:
    text = json.dumps(document)
    spoilt = re.sub(r'"certified": [\d.e-]+', f'"certified": {number}', text, count=1)
    assert spoilt != text
    with pytest.raises(InputError, match="expected JSON"):
        from_json(spoilt)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":' * 100_000, "", "null", "[]", '{"schema": 1}', "\x00"])
def test_what_is_no_document_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as refused:
        from_json(text, where="x.json")
    assert str(refused.value).startswith("x.json: ")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("results", 0, "special"), [True]),
        (("results", 0, "spans"), [[0, 1]]),
        (("results", 0, "ids"), []),
        (("results", 0, "runs", 0, "places", 0, "positions"), [99]),
        (("results", 0, "runs", 0, "places", 0, "positions"), [-1]),
        (("results", 0, "verdicts", 0, "positions"), [10**12]),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(
    path: tuple[Any, ...], value: Any, document: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="expected"):
        from_json(json.dumps(changed(document, path, value)))


def test_a_document_comes_back_as_it_was_written(document: dict[str, Any]) -> None:
    read = from_json(json.dumps(document))
    assert from_json(to_json(read)) == read


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[]", '{"film": "movie"}', '{"film": [1]}', '{"film": [NaN]}', "null", '{"film": null}']
)
def test_substitutions_that_are_none_are_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main(["certify", "a film", "--model", "sst-1", "--substitutions", str(tmp_path / "s.json")])
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
