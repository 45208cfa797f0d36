"""The tokeniser: how the treebank splits English, and where in the text each token stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certiformer.errors import InputError, ModelError
from certiformer.models.tokenizer import SPECIAL_TOKENS, WordTokenizer, split_words


def words(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It isn't bad.", "it is n't bad ."),
        ("It's good, isn't it?", "it 's good , is n't it ?"),
        ("I can't, won't, don't", "i ca n't , wo n't , do n't"),
        ("They'd've gone; we're here, I'm not", "they 'd 've gone ; we 're here , i 'm not"),
        ("You cannot lose. I'm gonna go", "you can not lose . i 'm gon na go"),
        ("a thought-provoking film", "a thought-provoking film"),
        ("well... no -- yes", "well ... no -- yes"),
        ("well… no—yes", "well ... no -- yes"),
        ('He said "go away" twice.', "he said `` go away '' twice ."),
        ("He said “go away” twice.", "he said `` go away '' twice ."),
        ("the year’s best", "the year 's best"),
        ("the dogs' dinner", "the dogs ' dinner"),
        ("he said 'no' to it", "he said ` no ' to it"),
        ("(a joke)", "( a joke )"),
        ("-LRB- a joke -RRB-", "( a joke )"),
        ("costs $1.8 million, 3,000 people at 10:30", "costs $ 1.8 million , 3,000 people at 10:30"),
        ("50% off", "50 % off"),
        ("the a/c and writer/director of 9/11", "the a/c and writer/director of 9/11"),
        ("Mr. Smith vs. the U.S. army", "mr. smith vs. the u.s. army"),
        ("J. R. Smith", "j. r. smith"),
        ("The '70s were for 'em", "the '70s were for 'em"),
        ("What?! Really!!", "what ?! really !!"),
        ("R&B at 5 o'clock", "r&b at 5 o'clock"),
        ("Good.Bad, good;bad", "good.bad , good ; bad"),
        ("a 90-minute movie", "a 90-minute movie"),
        ("cliché naïve Ünder", "cliché naïve ünder"),
        ("", ""),
        ("  \n\t ", ""),
    ],
)
def test_splits_as_the_treebank_does(text, expected):
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    "text",
    [
        "hands down the year 's most thought-provoking film .",
        "it is n't `` good '' -- but ( almost ) ...",
        "i ca n't say ' no ' , mr. jones",
        "a $ 1.8 million *** film , no. 1 in the u.s.",
    ],
)
def test_split_text_comes_through_unchanged(text):
    assert words(text) == text.split()


def test_spans_are_the_characters_that_were_typed():
    text = "It’s  NOT “Bad” — it isn't…"
    encoding = WordTokenizer([*SPECIAL_TOKENS, "not", "``", "bad", "''", "it"]).encode(text)
    typed = [text[a:b] for a, b in (span for span in encoding.spans if span)]
    assert typed == ["It", "’s", "NOT", "“", "Bad", "”", "—", "it", "is", "n't", "…"]
    assert encoding.tokens[:4] == ("[CLS]", "it", "'s", "not")
    assert encoding.ids == (2, 8, 1, 4, 5, 6, 7, 1, 8, 1, 1, 1, 3)
    assert encoding.spans[0] is None
    assert encoding.spans[-1] is None
    assert encoding.special == (True, *[False] * 11, True)


@given(st.text())
def test_spans_cover_every_visible_character_once_and_in_order(text):
    end = 0
    for word in split_words(text):
        assert word.start >= end
        assert word.end > word.start
        assert not text[end : word.start].strip()
        assert word.text
        end = word.end
    assert not text[end:].strip()


def test_names_of_special_tokens_in_a_text_are_not_special():
    tokenizer = WordTokenizer(SPECIAL_TOKENS)
    assert tokenizer.word_ids(["[SEP]", "[PAD]", "[CLS]"]) == [1, 1, 1]
    assert tokenizer.encode("a [SEP] b").ids.count(3) == 1


def test_too_long_a_text_is_an_error():
    tokenizer = WordTokenizer(SPECIAL_TOKENS, max_length=5)
    assert len(tokenizer.encode("a b c").ids) == 5
    with pytest.raises(InputError, match="4 tokens, this model takes at most 3"):
        tokenizer.encode("a b c d")


def test_decode_and_its_errors():
    tokenizer = WordTokenizer([*SPECIAL_TOKENS, "film"])
    assert tokenizer.decode([2, 4, 3]) == ["[CLS]", "film", "[SEP]"]
    with pytest.raises(InputError, match="id 5"):
        tokenizer.decode([5])
    with pytest.raises(ModelError, match=r"\[SEP\] not found"):
        WordTokenizer(["[PAD]", "[UNK]", "[CLS]"])
