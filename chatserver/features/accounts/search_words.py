"""Search words: the words of a name or id by which a user is found. No I/O.

Letter case, combining marks and compatibility forms are ignored: "Åsa" is found by "asa", "Øberg"
by "oberg". Chinese, Japanese and Korean names are written without spaces, so their words can also
be found from the second or third character on: 李明 by 明, 김민수 by 민수.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NAME_WORDS_MAX: Final = 5
ID_WORDS_MAX: Final = 3
WORDS_MAX: Final = 8  # maximum words per user; further words are ignored
WORD_CHARS_MAX: Final = 32  # maximum characters per word; further characters are ignored
QUERY_CHARS_MAX: Final = 80

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]{2,}"
)
_UNSPACED_CHARS: Final = 3
# Letters with a stroke or a ligature, which Unicode does not decompose.
_LETTERS: Final = str.maketrans(
    {
        "\u0131": "i",  # Turkish, without a dot
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "ħ": "h",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
    }
)


def split_words(text: str) -> list[str]:
    """Return the normalized words in `text`, in order and without duplicates."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(char for char in decomposed if not _is_ignored(char))
    words = _WORD.findall(unicodedata.normalize("NFC", plain.casefold()).translate(_LETTERS))
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


def is_match(wanted: list[str], words: tuple[str, ...]) -> bool:
    """Return whether each word of `wanted` is a prefix of one of `words`."""
    return all(any(word.startswith(prefix) for word in words) for prefix in wanted)


def _is_ignored(char: str) -> bool:
    """Return whether a character is a combining mark, a vowel sign or a format character."""
    category = unicodedata.category(char)
    return category[0] == "M" or category == "Cf"
