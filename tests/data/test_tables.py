"""Sentences from files: tables are read as tables, and nothing but text is taken for text."""

from __future__ import annotations

from pathlib import Path

import pytest

from certiformer.data.tables import Columns, form_of, read_rows
from certiformer.errors import InputError

CSV = 'text,label\n"A good, ""nice"" film",1\n\n"two\nlines",0\n'


def texts(path: Path, content: str | bytes, column: str | None = None) -> list[tuple[int, str]]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [(row.line, row.text) for row in read_rows(path, columns=Columns(text=column))]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.csv", CSV, [(2, 'A good, "nice" film'), (4, "two\nlines")]),
        ("a.CSV", "Sentence\nfine\n", [(2, "fine")]),
        ("a.csv", "\ufeffreview,stars\r\nfine,3\r\n", [(2, "fine")]),
        ("a.csv", "1,good\n0,bad\n", [(1, "good"), (2, "bad")]),
        ("a.tsv", 'id\tsentence\n7\tso "good\n', [(2, 'so "good')]),
        ("a.tsv", "good\t1\nbad\t0\n", [(1, "good"), (2, "bad")]),
        ("a.jsonl", '{"text": "good"}\n\n"bad"\n{"text": " "}\n', [(1, "good"), (3, "bad")]),
        ("a.json", '["good", {"sentence": "bad"}]', [(1, "good"), (2, "bad")]),
        ("a.txt", "label,text\n\n  a, b\tc \n", [(1, "label,text"), (3, "a, b\tc")]),
        ("a", "one\u2028still one\n", [(1, "one\u2028still one")]),
    ],
)
def test_each_as_what_it_is(tmp_path, name, content, found):
    assert texts(tmp_path / name, content) == found


def test_columns_that_are_named(tmp_path):
    content = "id,headline,text\n1,good,x\n2,bad,y\n"
    assert texts(tmp_path / "a.csv", content, "headline") == [(2, "good"), (3, "bad")]
    assert texts(tmp_path / "a.csv", content, "2") == [(2, "good"), (3, "bad")]
    assert texts(tmp_path / "b.csv", "one\ntwo\n", "1") == [(1, "one"), (2, "two")]
    assert texts(tmp_path / "a.jsonl", '{"a": "x", "text": "y"}', "a") == [(1, "x")]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", "headline\ngood\n", None, "line 1: expected a header with one of sentence, text"),
        ("a.csv", "a great film, truly\n", None, "--text-column"),
        ("a.csv", "text,review\na,b\n", None, "text, review could all be meant"),
        ("a.csv", "text,x\na\n", "x", "line 2: expected 2 columns, found 1"),
        ("a.csv", 'text\n"open\n', None, "line 2: expected comma-separated values"),
        ("a.csv", "text\nb\n", "headline", "no such column; the columns are 'text'"),
        ("a.tsv", "prose without a tab\n", None, "line 1: expected a header"),
        ("a.jsonl", '{"text": 3}\n', None, "line 1: expected a text, found 3"),
        ("a.jsonl", "{\n", None, "line 1: expected JSON"),
        ("a.jsonl", "[" * 100_000 + "\n", None, "line 1: expected JSON"),
        ("a.jsonl", '{"body": "x"}\n', None, "expected sentence or text or review or phrase"),
        ("a.json", '{"text": "x"}', None, "expected a JSON list"),
        ("a.txt", "x\n", "text", "plain text, which has no columns"),
        ("a.txt", b"\xff\xfe\x00", None, "expected UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, name, content, column, message):
    with pytest.raises(InputError, match=message) as caught:
        texts(tmp_path / name, content, column)
    assert str(tmp_path / name) in str(caught.value)


def test_forms_by_name():
    names = ("a.csv.gz", "a.TSV", "b.ndjson", "c.json", "d.txt", "e", "-")
    assert [form_of(n) for n in names] == ["csv", "tsv", "jsonl", "json", "text", "text", "text"]
