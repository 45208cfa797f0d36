"""Words the way the Stanford Sentiment Treebank has them, with the characters they came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import InputError, ModelError
from .model import Encoding, check_characters

PAD, UNK, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
LONGEST_WORD = 1000  # characters; what is longer is no word, and would be shown in full wherever it is named
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP)  # ids 0, 1, 2, 3 in the vocabularies written here

# one character for one character, so that spans stay those of the original text
_CHARACTERS = str.maketrans(
    {"‘": "'", "’": "'", "ʼ": "'", "‛": "'", "′": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
    | {"\u2010": "-", "\u2011": "-", "\u00ad": "-"}
)
_REPLACED = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
_REPLACED |= {"…": "...", "—": "--", "–": "--", "―": "--"}
_ABBREVIATIONS = (
    "mr mrs ms dr jr sr st vs prof gen lt col capt sgt rev gov sen rep inc co corp ltd bros etc al e.g i.e "
    "jan feb aug sept oct nov dec ave blvd mt wash pa calif dept"
).replace(" ", "|")
_W = r"[\w\u0300-\u036f]"  # letters, digits, underscore and combining accents
_WORD = re.compile(
    rf"""
      -(?:lrb|rrb|lsb|rsb|lcb|rcb)-
    | \.{{2,}} | -{{2,}} | ``+ | ''+ | [?!]{{2,}} | (?:\\?\*)+
    | '(?:em|til|tis|twas|cause|n'|n|\d\ds?)(?!{_W})       # 'em  'til  '70s
    | '(?:s|m|d|re|ve|ll)(?!{_W})                          # what is left of a contraction
    | (?:{_ABBREVIATIONS})\.(?!{_W})                       # mr.  vs.
    | no\.(?=\s*\d)                                        # no. 1
    | (?:[^\W\d_]\.){{2,}}(?!{_W})                         # u.s.
    | [^\W\d_]\.(?=\s+\S*{_W})                             # an initial, but not the last letter of a text
    | ol'(?!{_W}) | w/(?!{_W}) | [a-f]\+(?!{_W})
    | {_W}+(?:(?:[-&'/@]|\\/|\.|(?<=\d)[,:](?=\d)){_W}+)*  # thought-provoking  writer/director  o'clock  3,000
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CONTRACTION = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))", re.IGNORECASE)
_JOINED = frozenset({"gonna", "gotta", "wanna", "gimme", "lemme", "cannot"})  # gon na, ..., can not


@dataclass(frozen=True)
class Word:
    """A token and the characters `[start, end)` of the text it stands for."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Split English the way the treebank is split; text that is split already comes through unchanged."""
    plain = text.translate(_CHARACTERS)
    return [
        Word(_written(plain, start, end), start, end)
        for match in _WORD.finditer(plain)
        for start, end in _parts(plain, *match.span())
    ]


def _parts(plain: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """One match, cut again where a contraction joins two words."""
    contraction = _CONTRACTION.fullmatch(plain, start, end)
    if contraction and _is_word(plain[start]):
        yield from _parts(plain, *contraction.span(1))
        yield contraction.span(2)
    elif plain[start:end].lower() in _JOINED:
        yield start, start + 3
        yield start + 3, end
    else:
        yield start, end


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _written(plain: str, start: int, end: int) -> str:
    """How the treebank writes these characters."""
    token = plain[start:end].lower()
    opens = start == 0 or plain[start - 1] in " \t\n\r\u00a0([{-—–`"
    followed = end < len(plain) and not plain[end].isspace()
    if token == '"':
        return "``" if opens and followed else "''"
    if token == "'" and opens and followed:
        return "`"
    token = _REPLACED.get(token, token)
    return token.replace("\\/", "/").replace("\\*", "*")


class WordTokenizer:
    """Word-level, lower case, `[CLS] words [SEP]`; the ids are the lines of the vocabulary."""

    context = (0, 1)  # the tokens between two spaces depend on what is there, and (an initial, "no. 1") on what follows

    def __init__(self, vocabulary: Sequence[str], *, max_length: int | None = None) -> None:
        self._tokens = tuple(vocabulary)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        missing = [token for token in SPECIAL_TOKENS if token not in self._ids]
        if missing:
            raise ModelError(f"the vocabulary must hold {', '.join(SPECIAL_TOKENS)}; {', '.join(missing)} not found")
        self._max_length = max_length
        self._unknown, self._first, self._last = self._ids[UNK], self._ids[CLS], self._ids[SEP]

    def encode(self, text: str) -> Encoding:
        """The tokens of a text. A text longer than the model takes is an error, never cut silently."""
        words = split_words(check_characters(text))
        if self._max_length is not None and len(words) + 2 > self._max_length:
            raise InputError(
                f"the text has {len(words)} tokens, this model takes at most {self._max_length - 2}: shorten the text"
            )
        longest = max((word.end - word.start for word in words), default=0)
        if longest > LONGEST_WORD:
            raise InputError(f"a word of the text has {longest:,} characters: expected at most {LONGEST_WORD:,}")
        ids = self.word_ids([word.text for word in words])
        return Encoding(
            ids=(self._first, *ids, self._last),
            tokens=(CLS, *(word.text for word in words), SEP),
            spans=(None, *((word.start, word.end) for word in words), None),
            special=(True, *(False for _ in words), True),
        )

    def word_ids(self, words: Sequence[str]) -> list[int]:
        """Ids of words that are split and in lower case already, without [CLS] and [SEP]."""
        specials = (PAD, CLS, SEP)
        return [self._unknown if word in specials else self._ids.get(word, self._unknown) for word in words]

    def decode(self, ids: list[int]) -> list[str]:
        """The token of each id."""
        bad = [i for i in ids if not 0 <= i < len(self._tokens)]
        if bad:
            raise InputError(f"id {bad[0]} is not in the vocabulary of {len(self._tokens)} tokens")
        return [self._tokens[i] for i in ids]
