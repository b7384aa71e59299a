"""Search words: the words of a name or id by which a user is found. No I/O.

Letter case, diacritics and width are ignored, as in messages
(`chatserver.domain.text.letter_folding`): "Åsa" is found by "asa", "Øberg" by "oberg". Chinese,
Japanese and Korean names are written without spaces, so their words can also be found from the
second or third character on: 李明 by 明, 김민수 by 민수.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from chatserver.domain.text.letter_folding import fold_letter

NAME_WORDS_MAX: Final = 5
ID_WORDS_MAX: Final = 3
WORDS_MAX: Final = 8  # maximum words per user; further words are ignored
WORD_CHARS_MAX: Final = 32  # maximum characters per word; further characters are ignored
QUERY_CHARS_MAX: Final = 80

_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]{2,}"
)
_UNSPACED_CHARS: Final = 3


def split_words(text: str) -> list[str]:
    """Return the normalized words in `text`, in order and without duplicates."""
    folded = "".join(map(_fold, unicodedata.normalize("NFC", text)))
    words = unicodedata.normalize("NFC", folded).split()
    return list(dict.fromkeys(word[:WORD_CHARS_MAX] for word in words))


def list_search_words(user: str, name: str | None) -> tuple[str, ...]:
    """Return a user's search words, from the display name and the user id."""
    words = [*split_words(name or "")[:NAME_WORDS_MAX], *split_words(user)[:ID_WORDS_MAX]]
    inner = [
        word[at:]
        for word in words
        if _UNSPACED.fullmatch(word)
        for at in range(1, min(len(word), _UNSPACED_CHARS))
    ]
    return tuple(dict.fromkeys([*words, *inner]))[:WORDS_MAX]


def is_match(prefixes: list[str], words: tuple[str, ...]) -> bool:
    """Return whether each word of `prefixes` is a prefix of one of `words`."""
    return all(any(word.startswith(prefix) for word in words) for prefix in prefixes)


def _fold(char: str) -> str:
    """Return the folded letters of a character; a space if it separates words."""
    folded = fold_letter(char)
    if folded or unicodedata.category(char)[0] in "LM" or unicodedata.category(char) == "Cf":
        return folded
    return " "
