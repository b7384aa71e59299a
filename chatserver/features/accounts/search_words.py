"""Words by which a user is found. No I/O.

Letter case, accents and compatibility forms are ignored: "Åsa" is found by "asa". A word of a
script without spaces also counts from its second and third character, so 李明 is found by 明.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NAME_WORDS_MAX: Final = 5
ID_WORDS_MAX: Final = 3
WORDS_MAX: Final = 8  # of a user; more are ignored
WORD_CHARS_MAX: Final = 32  # the rest is ignored
QUERY_CHARS_MAX: Final = 80

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]{2,}")
_UNSPACED_CHARS: Final = 3


def fold(text: str) -> list[str]:
    """Return the words of a text in their searchable form, in order, each once."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    words = _WORD.findall(unicodedata.normalize("NFC", plain.casefold()))
    return list(dict.fromkeys(word[:WORD_CHARS_MAX] for word in words))


def words_of(user: str, name: str | None) -> tuple[str, ...]:
    """Return the words by which a user is found: of the display name and of the user id."""
    words = [*fold(name or "")[:NAME_WORDS_MAX], *fold(user)[:ID_WORDS_MAX]]
    inner = [
        word[at:]
        for word in words
        if _UNSPACED.fullmatch(word)
        for at in range(1, min(len(word), _UNSPACED_CHARS))
    ]
    return tuple(dict.fromkeys([*words, *inner]))[:WORDS_MAX]


def is_match(wanted: list[str], words: tuple[str, ...]) -> bool:
    """Return whether each of `wanted` is the beginning of one of `words`."""
    return all(any(word.startswith(each) for word in words) for each in wanted)
