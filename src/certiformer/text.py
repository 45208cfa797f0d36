"""Text that comes from outside, made safe to show."""

from __future__ import annotations

# Left-to-right and right-to-left marks, embeddings, overrides and isolates: they reorder what is around them.
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINES = (0x2028, 0x2029)  # separators that some programs take for the end of a line
_PICTURES = (
    {code: 0x2400 + code for code in range(0x20)}  # ESC becomes ␛
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(128, 160), *_BIDI, *_LINES, *range(55296, 57344)), 65533)
)


def visible(text: str, *, keep: str = "") -> str:
    """`text` with a visible character in place of each control character, lone surrogate and change of direction.

    One for one, so that positions in the text stay what they are. `keep` names those to leave, such as newlines.
    """
    if text.isascii() and text.isprintable():
        return text
    table = _PICTURES if not keep else {code: to for code, to in _PICTURES.items() if chr(code) not in keep}
    return text.translate(table)


def escapes(json: str) -> str:
    """JSON text with the same characters as escapes: another spelling of the same strings."""
    return json.translate({code: f"\\u{code:04x}" for code in _PICTURES if code >= 0x7F})
