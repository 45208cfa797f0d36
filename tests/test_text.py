"""Control characters of texts, files and labels never reach a terminal or a page as they are."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from certiformer.text import escapes, visible

HARMFUL = [chr(c) for c in (*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x200F, 0x061C, 0x2028)]


@given(st.text(st.one_of(st.sampled_from(HARMFUL), st.characters())))
def test_nothing_that_controls_is_left(text):
    shown = visible(text)
    assert len(shown) == len(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")]
    assert visible(shown) == shown


@given(st.text(st.one_of(st.sampled_from(HARMFUL), st.characters(exclude_categories=["Cs"]))))
def test_json_is_another_spelling_of_the_same(text):
    written = escapes(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert not [c for c in written if unicodedata.category(c) in ("Cc", "Zl", "Zp")]


def test_lines_can_be_kept():
    assert visible("a\nb\x1b[31m", keep="\n") == "a\nb␛[31m"
    assert visible("film é 映画 🎬") == "film é 映画 🎬"
