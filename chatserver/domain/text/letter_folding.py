"""Letter folding: the form of a character that search compares. No I/O.

Search ignores case, diacritics and width, and the differences between letters that people type for
each other: Ø and O, æ and ae, Persian ک and Arabic ك, ٣ and 3. Names and messages are folded alike.
The vowel signs of Indian and South East Asian scripts are kept, because words differ by them.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Final

_WITH_MARK: Final = re.compile(r"((?:LATIN|CYRILLIC|GREEK) SMALL LETTER .+?) WITH .+")
# Letters that Unicode neither decomposes nor names after another letter.
_LETTERS: Final = {
    "\u0131": "i",  # Turkish, without a dot
    "æ": "ae",
    "œ": "oe",
    "ð": "d",
    "þ": "th",
    "ŋ": "ng",
    "ĸ": "k",
    "\u0640": "",  # Arabic tatweel, which only makes words longer
    "\u0671": "\u0627",  # alef wasla
    "\u0649": "\u064a",  # alef maksura
    "\u06cc": "\u064a",  # Persian yeh
    "\u06d2": "\u064a",  # Urdu yeh barree
    "\u06a9": "\u0643",  # Persian kaf
    "\u0629": "\u0647",  # teh marbuta
    "\u06be": "\u0647",  # Urdu heh doachashmee
    "\u06c1": "\u0647",  # Urdu heh goal
    "\u06d5": "\u0647",  # Kurdish ae
    "\u05da": "\u05db",  # Hebrew final letters
    "\u05dd": "\u05de",
    "\u05df": "\u05e0",
    "\u05e3": "\u05e4",
    "\u05e5": "\u05e6",
}
# Devanagari to Sinhala, Thai, Lao, Tibetan, Burmese, Khmer.
_VOWEL_SIGN_RANGES: Final = ((0x0900, 0x109F), (0x1780, 0x17FF))
_VOWEL_CLASSES: Final = frozenset({0, 103, 118})  # other combining classes are marks of tones etc.
_THAI_AND_LAO_TONES: Final = frozenset({*range(0x0E47, 0x0E4F), *range(0x0EC8, 0x0ECF)})


def is_vowel_sign(char: str) -> bool:
    """Return whether a combining character is a vowel, which is part of the spelling of a word."""
    code = ord(char)
    return (
        any(first <= code <= last for first, last in _VOWEL_SIGN_RANGES)
        and unicodedata.category(char) in ("Mc", "Mn")
        and unicodedata.combining(char) in _VOWEL_CLASSES
        and code not in _THAI_AND_LAO_TONES
    )


@functools.lru_cache(maxsize=65_536)
def fold_letter(char: str) -> str:
    """Return the folded letters and digits of a character; empty if it has none.

    Syllables of Hangul stay whole.
    """
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", char).casefold())
    letters = "".join(map(_fold_one, folded.casefold()))
    return unicodedata.normalize("NFC", letters)


def _fold_one(char: str) -> str:
    if char in _LETTERS:
        return _LETTERS[char]
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if not char.isalnum():
        return char if is_vowel_sign(char) else ""
    named = _WITH_MARK.fullmatch(unicodedata.name(char, ""))
    if named is None:
        return char
    try:
        return fold_letter(unicodedata.lookup(named.group(1)))
    except KeyError:
        return char
