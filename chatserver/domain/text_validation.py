"""Validation of text: length limits and allowed characters, checked once on input."""

from __future__ import annotations

import dataclasses
import re
import unicodedata

from chatserver.errors import BadRequest, TooLarge

BODY_CHARS_MAX = 4_000
BODY_BYTES_MAX = 16_384
BODY_TOP = 262_144  # upper bound of both body limits (chars, bytes); a DynamoDB item holds 400 KB
NAME_CHARS_MAX = 80
NOTE_CHARS_MAX = 500
COMBINING_RUN_MAX = 8
# Maximum combining marks in a row before normalization. Normalization sorts them in quadratic time,
# and can reduce their number.
_UNSORTED_RUN_MAX = 4 * COMBINING_RUN_MAX
# Maximum code points of an emoji; the longest in use has 10: a couple with two skin tones.
EMOJI_CHARS_MAX = 16

# One emoji: the grammar of Unicode TR 51, section 1.4.9. Characters are matched by block, so that
# emoji newer than this table are accepted; keycaps (1️⃣) and flags are listed explicitly.
_EMOJI_CHAR = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa"
    "\U0001f400-\U0001faff]"
)
_EMOJI_PART = (
    f"(?:[\U0001f1e6-\U0001f1ff]{{2}}|{_EMOJI_CHAR}"
    "(?:[\U0001f3fb-\U0001f3ff]|\ufe0f|[\U000e0020-\U000e007e]+\U000e007f)?)"
)
_EMOJI = re.compile(f"{_EMOJI_PART}(?:\u200d{_EMOJI_PART})*|[0-9#*]\ufe0f?\u20e3")

_ASCII_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS_AND_MARKS = re.compile("[\t\n\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclasses.dataclass(frozen=True, slots=True)
class BodyBounds:
    """Maximum length of a message body."""

    chars_max: int = BODY_CHARS_MAX
    bytes_max: int = BODY_BYTES_MAX  # length in UTF-8


WIDEST = BodyBounds()


def parse_body(text: str, bounds: BodyBounds = WIDEST, field: str = "body") -> str:
    """Return a message body, NFC-normalized, with line breaks as newlines.

    Raises:
        BadRequest: the text is empty, or has a control character other than tab and line breaks, or
        more than 8 combining marks in a row.
        TooLarge: the result has more characters or bytes than `bounds` allow.
    """
    text = _normalize_breaks(text)
    if len(text) > bounds.chars_max:
        raise TooLarge(f"{field}: must be at most {bounds.chars_max} characters")
    if not text:
        raise BadRequest(f"{field}: must not be empty")
    is_plain = text.isascii() and (text.isprintable() or _ASCII_PLAIN.fullmatch(text) is not None)
    if is_plain and len(text) <= bounds.bytes_max:
        return text
    return _parse_wide(text, field, bounds.chars_max, bounds.bytes_max)


def _normalize_breaks(text: str) -> str:
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def clean_body(text: str, bounds: BodyBounds = WIDEST) -> str:
    """Return the longest valid message body from the start of `text`; may be empty.

    Use this for generated text, which cannot be rejected.
    """
    text = _normalize_breaks(text.encode("utf-8", "replace").decode())
    chars: list[str] = []
    run = 0
    for char in unicodedata.normalize("NFC", _truncate_runs(_CONTROL.sub("", text))):
        run = run + 1 if unicodedata.combining(char) else 0
        if run <= COMBINING_RUN_MAX:
            chars.append(char)
    text = unicodedata.normalize("NFC", "".join(chars))[: bounds.chars_max]
    return text.encode()[: bounds.bytes_max].decode("utf-8", "ignore")


def _truncate_runs(text: str) -> str:
    """Truncate long runs of combining marks, which are slow to normalize."""
    chars: list[str] = []
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run <= _UNSORTED_RUN_MAX:
            chars.append(char)
    return "".join(chars)


def _parse_wide(text: str, field: str, chars_max: int, bytes_max: int = BODY_BYTES_MAX) -> str:
    _check_marks(text, field, _UNSORTED_RUN_MAX)
    text = unicodedata.normalize("NFC", text)
    if len(text) > chars_max:  # check again: normalization can add characters
        raise TooLarge(f"{field}: must be at most {chars_max} characters")
    if len(text.encode("utf-8", "surrogatepass")) > bytes_max:
        raise TooLarge(f"{field}: must be at most {bytes_max} bytes of UTF-8")
    if _CONTROL.search(text) is not None:
        raise BadRequest(
            f"{field}: must not contain control characters other than tab and line breaks"
        )
    _check_marks(text, field, COMBINING_RUN_MAX)
    return text


def _check_marks(text: str, field: str, run_max: int) -> None:
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run > run_max:
            raise BadRequest(
                f"{field}: must have at most {COMBINING_RUN_MAX} combining marks in a row"
            )


def parse_name(text: str, field: str = "name") -> str:
    """Return a display name, stripped and NFC-normalized.

    Raises:
        BadRequest: the name is empty, or has control or bidirectional-override characters.
        TooLarge: the name has more than 80 characters.
    """
    text = text.strip()
    if len(text) > NAME_CHARS_MAX:
        raise TooLarge(f"{field}: must be at most {NAME_CHARS_MAX} characters")
    if not text:
        raise BadRequest(f"{field}: must not be empty")
    if _BREAKS_AND_MARKS.search(text) is not None:
        raise BadRequest(f"{field}: must not contain line breaks or direction marks")
    return _parse_wide(text, field, NAME_CHARS_MAX)


def parse_note(text: str, field: str) -> str:
    """Return optional text, such as a user's `about`, stripped and normalized."""
    text = _normalize_breaks(text.strip())
    if len(text) > NOTE_CHARS_MAX:
        raise TooLarge(f"{field}: must be at most {NOTE_CHARS_MAX} characters")
    return _parse_wide(text, field, NOTE_CHARS_MAX)


def parse_emoji(text: str) -> str:
    """Return the emoji of a reaction; an empty string removes the reaction.

    Raises:
        BadRequest: the text is not exactly one emoji.
        TooLarge: the text has more than 16 code points.
    """
    if len(text) > EMOJI_CHARS_MAX:
        raise TooLarge(f"emoji: must be at most {EMOJI_CHARS_MAX} code points")
    if text and _EMOJI.fullmatch(text) is None:
        raise BadRequest("emoji: must be one emoji, such as 👍")
    return text
