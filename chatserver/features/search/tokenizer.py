"""Tokenizer for message text and queries. No I/O.

- A word is a sequence of letters and digits. Its token is folded
  (`chatserver.domain.text.letter_folding`): "Größe" → "grosse", "Øl" → "ol", "کتاب" → "كتاب".
- Scripts without spaces, and Korean, whose words have endings, are split into bigrams: each
  character forms a token with the next one. "東京都" → "東京", "京都", "都".
- A symbol such as an emoji is a token; its variations are ignored: "👍🏽" → "👍".

Marks and invisible characters (such as zero-width joiners) never separate words.

Token positions refer to the NFC-normalized text (`normalize`). The index and queries use the same
tokens, so a change to these rules requires a rebuild (`RULES_VERSION`).

Texts are split in C as far as possible: `str.translate` replaces each character by its kind, and a
regular expression finds the tokens in the kinds.
"""

from __future__ import annotations

import itertools
import operator
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from chatserver.domain.text.letter_folding import fold_letter, is_vowel_sign

RULES_VERSION: Final = 2
TOKEN_CHARS_MAX: Final = 64  # longer tokens are truncated
TOKENS_MAX: Final = 10_000  # maximum tokens of a message in the index; later words cannot be found

_WORD: Final = re.compile(r"[a-z0-9]+")
_SEPARATOR, _LETTER, _MARK, _GRAM, _SYMBOL = "-lmgs"
_TOKEN: Final = re.compile(r"l[lm]*|g[gm]*|sm*")
_GRAM_CHAR: Final = re.compile(r"gm*")
_GRAM_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x318F),  # Japanese syllables, Bopomofo, Hangul letters
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_VOICED_MARKS: Final = {"\uff9e": "\u3099", "\uff9f": "\u309a"}  # of half-width Japanese syllables
_WITHOUT_VOICED_MARKS: Final = dict.fromkeys(map(ord, _VOICED_MARKS.values()))
_KNOWN_CHARS_MAX: Final = 65_536


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
    tokens: list[Token] = []
    if text.isascii():
        for match in _WORD.finditer(text.lower()):
            tokens.append(Token(match.group()[:TOKEN_CHARS_MAX], match.start(), match.end()))
            if len(tokens) == TOKENS_MAX:
                break
        return tokens
    kinds = text.translate(_KINDS)
    for match in _TOKEN.finditer(kinds):
        start, end = match.span()
        match kinds[start]:
            case "g":
                tokens += _split_grams(text, kinds, start, end)
            case "l":
                word = text[start:end].translate(_FOLDED).translate(_WITHOUT_VOICED_MARKS)
                tokens.append(Token(word[:TOKEN_CHARS_MAX], start, end))
            case _:
                tokens.append(Token(text[start], start, end))
        if len(tokens) >= TOKENS_MAX:
            break
    return tokens[:TOKENS_MAX]


def _split_grams(text: str, kinds: str, start: int, end: int) -> Iterator[Token]:
    """Return the tokens of a sequence of characters of scripts without spaces."""
    starts: Sequence[int]
    ends: Sequence[int]
    chars = text[start:end].translate(_FOLDED)
    if kinds.find(_MARK, start, end) < 0 and len(chars) == end - start:
        grams, starts, ends = list(chars), range(start, end), range(start + 1, end + 1)
    else:
        spans = [found.span() for found in _GRAM_CHAR.finditer(kinds, start, end)]
        grams = [_join_voiced(text[at:until].translate(_FOLDED)) for at, until in spans]
        starts, ends = zip(*spans, strict=True)
    pairs = itertools.chain(map(operator.add, grams, grams[1:]), grams[-1:])
    return map(Token, pairs, starts, ends, itertools.repeat(True))


def _join_voiced(char: str) -> str:
    return char if len(char) == 1 else unicodedata.normalize("NFC", char)


class _Kinds(dict[int, str]):
    """The kind of each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        kind, _ = _remember(code)
        return kind


class _Folded(dict[int, str]):
    """The folded form of each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        _, folded = _remember(code)
        return folded


_KINDS: Final = _Kinds()
_FOLDED: Final = _Folded()


def _remember(code: int) -> tuple[str, str]:
    kind, folded = _classify(chr(code))
    if len(_KINDS) >= _KNOWN_CHARS_MAX:
        _KINDS.clear()
        _FOLDED.clear()
    _KINDS[code], _FOLDED[code] = kind, folded
    return kind, folded


def _classify(char: str) -> tuple[str, str]:
    """Return the kind of a character and its folded form."""
    if char in _VOICED_MARKS:
        return _MARK, _VOICED_MARKS[char]
    if is_vowel_sign(char):
        return (_GRAM if _is_gram(char) else _LETTER), char
    category = unicodedata.category(char)
    if category[0] == "M" or category == "Cf" or ord(char) in _SKIN_TONES:
        return _MARK, ""
    folded = fold_letter(char)
    if category[0] in "LN" and unicodedata.decimal(char, None) is None:
        letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", char)))
        if letters and _is_gram(letters):
            return _GRAM, letters
    if category[0] in "LN":
        return (_LETTER, folded) if folded else (_MARK, "")
    if category == "So":
        # Some symbols stand for letters, such as ㎏ for kg.
        return (_LETTER, folded) if folded else (_SYMBOL, char)
    return _SEPARATOR, ""


def _is_gram(letters: str) -> bool:
    return any(first <= ord(letters[0]) <= last for first, last in _GRAM_RANGES)
