"""Validation of text: length limits and allowed characters, checked once on input."""

from __future__ import annotations

import dataclasses
import re
import unicodedata

from chatserver.domain.text.graphemes import truncate
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

_ASCII_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS_AND_MARKS = re.compile("[\t\n\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Characters without a visible form: Default_Ignorable_Code_Point (DerivedCoreProperties.txt), blank
# Braille, a null note head, and interlinear annotations. Those that an emoji or a script needs are
# invisible only if nothing else is there: joiners, variation selectors and tags.
_UNNEEDED = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
)
_NEEDED = "\u061c\u200c-\u200f\u202a-\u202e\u2066-\u2069\ufe00-\ufe0f\U000e0000-\U000e0fff"
_BLANK = re.compile(f"[\\s{_UNNEEDED}{_NEEDED}]*")
_UNNEEDED_CHAR = re.compile(f"[{_UNNEEDED}]")


@dataclasses.dataclass(frozen=True, slots=True)
class BodyBounds:
    """Maximum length of a message body."""

    chars_max: int = BODY_CHARS_MAX
    bytes_max: int = BODY_BYTES_MAX  # length in UTF-8


WIDEST = BodyBounds()


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: it is empty, or has only invisible characters."""
    # Most texts begin with a visible ASCII character.
    return not "!" <= text[:1] <= "~" and _BLANK.fullmatch(text) is not None


def parse_body(text: str, bounds: BodyBounds = WIDEST, field: str = "body") -> str:
    """Return a message body, NFC-normalized, with line breaks as newlines.

    Raises:
        BadRequest: the text is blank, or has a control character other than tab and line breaks, or
        more than 8 combining marks in a row.
        TooLarge: the result has more characters or bytes than `bounds` allow.
    """
    text = _normalize_breaks(text)
    if len(text) > bounds.chars_max:
        raise TooLarge(f"{field}: must be at most {bounds.chars_max} characters")
    if is_blank(text):
        raise BadRequest(f"{field}: must not be empty")
    is_plain = text.isascii() and (text.isprintable() or _ASCII_PLAIN.fullmatch(text) is not None)
    if is_plain and len(text) <= bounds.bytes_max:
        return text
    return _parse_wide(text, field, bounds.chars_max, bounds.bytes_max)


def parse_caption(text: str, bounds: BodyBounds = WIDEST) -> str:
    """Return the body of a message with attachments, which may be empty. See `parse_body`."""
    if len(text) <= bounds.chars_max and is_blank(text):
        return ""
    return parse_body(text, bounds)


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
    text = truncate(unicodedata.normalize("NFC", "".join(chars)), bounds.chars_max)
    fitting = text.encode()[: bounds.bytes_max].decode("utf-8", "ignore")
    return truncate(text, len(fitting))


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
    """Return a display name, stripped and NFC-normalized, without invisible characters.

    Joiners, variation selectors and tags are kept: emoji and some scripts need them.

    Raises:
        BadRequest: the name is blank, or has control or bidirectional-override characters.
        TooLarge: the name has more than 80 characters.
    """
    text = text.strip()
    if len(text) > NAME_CHARS_MAX:
        raise TooLarge(f"{field}: must be at most {NAME_CHARS_MAX} characters")
    text = _UNNEEDED_CHAR.sub("", text).strip()
    if is_blank(text):
        raise BadRequest(f"{field}: must not be empty")
    if _BREAKS_AND_MARKS.search(text) is not None:
        raise BadRequest(f"{field}: must not contain line breaks or direction marks")
    return _parse_wide(text, field, NAME_CHARS_MAX)


def parse_note(text: str, field: str) -> str:
    """Return optional text, such as a user's `about`, stripped and normalized; "" if blank."""
    text = _normalize_breaks(text.strip())
    if len(text) > NOTE_CHARS_MAX:
        raise TooLarge(f"{field}: must be at most {NOTE_CHARS_MAX} characters")
    if is_blank(text):
        return ""
    return _parse_wide(text, field, NOTE_CHARS_MAX)
