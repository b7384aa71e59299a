"""Truncation of text between graphemes, the characters that a reader sees.

A grapheme can have many code points: a family emoji, a flag, a letter with its marks. The rules are
those of Unicode UAX #29, without the table: a break after a code point that joins, or before one
that extends the previous, is not allowed.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_VIRAMA = 9  # combining class: joins two consonants of an Indic script
_GRAPHEME_CHARS_MAX = 64  # longer sequences of marks are cut


def truncate(text: str, chars_max: int) -> str:
    """Return the longest start of `text` with up to `chars_max` code points and whole graphemes."""
    return text if len(text) <= chars_max else text[: find_break(text, chars_max)]


def find_break(text: str, at: int) -> int:
    """Return the last position up to `at` between two graphemes."""
    for index in range(at, max(0, at - _GRAPHEME_CHARS_MAX), -1):
        if index >= len(text) or _is_break(text, index):
            return index
    return at if at > _GRAPHEME_CHARS_MAX else 0


def _is_break(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return True
    if before == _JOINER or unicodedata.combining(before) == _VIRAMA or _is_extending(after):
        return False
    if _is_flag_half(before) and _is_flag_half(after):
        return _count_flag_halves(text, index) % 2 == 0
    return not (_is_jamo(before) and _is_jamo(after))


def _is_extending(char: str) -> bool:
    return (
        unicodedata.category(char)[0] == "M"
        or char == _JOINER
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags of a flag
        or char in "\u200c\uff9e\uff9f"
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _count_flag_halves(text: str, end: int) -> int:
    start = end
    while start > 0 and _is_flag_half(text[start - 1]):
        start -= 1
    return end - start


def _is_jamo(char: str) -> bool:
    return any(
        first <= char <= last
        for first, last in (("\u1100", "\u11ff"), ("\ua960", "\ua97c"), ("\ud7b0", "\ud7fb"))
    )
