"""Tokenizer for message text and queries. No I/O.

- A word is a sequence of letters and digits. Its token is case-folded, without diacritics, and with
  full-width characters converted to half width: "Größe" → "grosse", "Café" → "cafe".
- Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) are split into bigrams: each
  character forms a token with the next one. "東京都" → "東京", "京都", "都".

Token positions refer to the NFC-normalized text (`normalize`). The index and queries use the same
tokens, so a change to these rules requires a rebuild (`RULES_VERSION`).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Final, NamedTuple

RULES_VERSION: Final = 1
TOKEN_CHARS_MAX: Final = 64  # longer tokens are truncated
TOKENS_MAX: Final = 10_000  # maximum tokens of a message in the index; later words cannot be found

_WORD: Final = re.compile(r"[a-z0-9]+")
_SEPARATOR, _LETTER, _MARK, _GRAM = 0, 1, 2, 3
_GRAM_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # Japanese syllables
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_HANGUL: Final = (0xAC00, 0xD7A3)


class Token(NamedTuple):
    """A token, and the position of its word or character in the text."""

    text: str
    start: int
    end: int
    is_gram: bool = False


def normalize(text: str) -> str:
    """Return the NFC-normalized text, to which the positions of tokens refer."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def tokenize(text: str) -> list[Token]:
    """Return up to `TOKENS_MAX` tokens of a normalized text."""
    if text.isascii():
        tokens = []
        for match in _WORD.finditer(text.lower()):
            word = match.group()[:TOKEN_CHARS_MAX]
            tokens.append(Token(word, match.start(), match.end()))
            if len(tokens) == TOKENS_MAX:
                break
        return tokens
    return _tokenize_any(text)


def _tokenize_any(text: str) -> list[Token]:
    tokens: list[Token] = []
    word: list[str] = []
    start = 0
    grams: list[tuple[str, int, int]] = []

    def close_word(end: int) -> None:
        if word:
            tokens.append(Token("".join(word)[:TOKEN_CHARS_MAX], start, end))
            word.clear()

    def close_grams() -> None:
        for index, (char, begin, end) in enumerate(grams):
            following = grams[index + 1][0] if index + 1 < len(grams) else ""
            tokens.append(Token(char + following, begin, end, is_gram=True))
        grams.clear()

    for index, char in enumerate(text):
        kind, folded = _fold(char)
        if kind == _LETTER:
            close_grams()
            if not word:
                start = index
            word.append(folded)
        elif kind == _GRAM:
            close_word(index)
            grams.append((folded, index, index + 1))
        elif kind == _SEPARATOR:
            close_word(index)
            close_grams()
        elif grams:  # a combining mark extends the character before it
            last, begin, _ = grams[-1]
            grams[-1] = (last, begin, index + 1)
        if len(tokens) >= TOKENS_MAX:
            return tokens[:TOKENS_MAX]
    close_word(len(text))
    close_grams()
    return tokens[:TOKENS_MAX]


@functools.lru_cache(maxsize=65_536)
def _fold(char: str) -> tuple[int, str]:
    """Return the kind of a character and its case-folded form."""
    code = ord(char)
    category = unicodedata.category(char)
    if category[0] == "M" or category == "Cf":
        return _MARK, ""
    if any(first <= code <= last for first, last in _GRAM_RANGES):
        if category[0] not in "LN":
            return _SEPARATOR, ""
        return _GRAM, unicodedata.normalize("NFKC", char)
    if category[0] not in "LN":
        return _SEPARATOR, ""
    if _HANGUL[0] <= code <= _HANGUL[1]:
        return _LETTER, char
    folded = unicodedata.normalize("NFKC", char).casefold()
    letters = "".join(
        letter for letter in unicodedata.normalize("NFKD", folded) if letter.isalnum()
    ).casefold()
    return (_LETTER, letters) if letters else (_MARK, "")
