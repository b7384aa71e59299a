"""Attachment rules: file names, sizes and permission to send. No I/O.

A file has one owner and one chat. It is `waiting` until its upload has been validated. Then it is
`ready`, and its owner may send it to its chat. `seqs` are the seqs of the messages that reference
it. `due` is the file's deletion time. It is set if no message references the file, or if all
messages that reference it expire.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import unicodedata
import urllib.parse
from typing import Literal

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.text_validation import is_blank
from chatserver.errors import BadRequest, Conflict, NotFound, TooLarge

FILE_NAME_CHARS_MAX = 120
FILE_NAME_BYTES_MAX = 255  # maximum bytes of a file name in most file systems
SEQS_MAX = 1000  # maximum messages recorded per file
THUMB_TYPE = "image/webp"

Phase = Literal["waiting", "ready"]
NO_SUCH_FILE = "attachment: you have no such file in this chat"

_CHECKSUM = re.compile(r"[0-9a-f]{64}")
# Path separators, and other characters that Windows does not allow in file names.
_NOT_IN_NAMES = re.compile(r'[/\\:*?"<>|]')
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # zero-width joiners, used in emoji and in Persian and Indic texts


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file that has been announced for upload, or uploaded."""

    id: str
    owner: UserId
    chat: ChatId
    name: str
    type: str
    size: int
    sha256: str  # hex
    created: int  # seconds since 1970
    due: int | None  # deletion time, seconds since 1970
    phase: Phase = "waiting"
    seqs: frozenset[int] = frozenset()
    width: int | None = None
    height: int | None = None
    has_thumb: bool = False
    is_processed: bool = False  # the media worker has finished, with or without a thumbnail
    rev: int = 1

    @property
    def is_unreferenced(self) -> bool:
        """True if no message references the file. The number of such files is limited."""
        return not self.seqs

    def is_same_request(self, other: File) -> bool:
        """Return whether both files were announced with the same values.

        The type is not compared, because the upload may have corrected it.
        """
        names = ("id", "owner", "chat", "name", "size", "sha256")
        return all(getattr(self, name) == getattr(other, name) for name in names)


@dataclasses.dataclass(frozen=True, slots=True)
class UploadBounds:
    """Limits on file size, on the number of a user's unreferenced files, and on all their bytes."""

    size_max: int
    waiting_max: int
    user_bytes_max: int


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """The number of a user's unreferenced files, and the bytes of all their files."""

    waiting: int = 0
    user_bytes: int = 0


def parse_file_name(text: str) -> str:
    """Return the display name of a file, stripped and NFC-normalized.

    Raises:
        BadRequest: the name is empty, has only dots, or contains an invalid character.
        TooLarge: the name has more than 120 characters or 255 bytes.
    """
    text = text.strip()
    # Normalization may shorten the name. Skip it for long names, because its cost is quadratic in
    # the number of consecutive combining marks.
    if len(text) <= 4 * FILE_NAME_CHARS_MAX:
        text = unicodedata.normalize("NFC", text)
    if len(text) > FILE_NAME_CHARS_MAX:
        raise TooLarge(f"name: must be at most {FILE_NAME_CHARS_MAX} characters")
    if is_blank(text.strip(".")):
        raise BadRequest("name: must not be empty")
    if _NOT_IN_NAMES.search(text):
        raise BadRequest('name: must not contain any of / \\ : * ? " < > |')
    for char in text:
        if unicodedata.category(char) in _HIDDEN_CATEGORIES and char not in _JOINERS:
            raise BadRequest("name: must not contain control or formatting characters")
    if len(text.encode()) > FILE_NAME_BYTES_MAX:
        raise TooLarge(f"name: must be at most {FILE_NAME_BYTES_MAX} bytes of UTF-8")
    return text


def parse_checksum(text: str) -> str:
    """Validate a SHA-256 checksum and return it in lower case. Raises BadRequest."""
    text = text.lower()
    if _CHECKSUM.fullmatch(text) is None:
        raise BadRequest("sha256: must be 64 hexadecimal digits")
    return text


def check_size(size: int, bounds: UploadBounds) -> None:
    """Check that a file is not too large. Raises TooLarge."""
    size_max = min(bounds.size_max, bounds.user_bytes_max)
    if size > size_max:
        raise TooLarge(f"size: must be at most {size_max} bytes")


def checksum_base64(sha256: str) -> str:
    """Convert a checksum from hexadecimal to base64, which S3 uses."""
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def build_content_disposition(name: str) -> str:
    """Return a download's `Content-Disposition` header (RFC 6266, RFC 8187)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9 ._()-]", "_", plain).strip() or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{urllib.parse.quote(name, safe='')}"


def check_sendable(file: File | None, sender: UserId, chat: ChatId, now_s: float) -> File:
    """Return the file if `sender` may send it to `chat` now.

    Raises:
        NotFound: the file no longer exists, or belongs to another user or chat.
        Conflict: the file has not been uploaded yet.
    """
    if file is None or file.owner != sender or file.chat != chat:
        raise NotFound(NO_SUCH_FILE)
    if file.due is not None and file.due <= now_s:
        raise NotFound(NO_SUCH_FILE)
    if file.phase != "ready":
        raise Conflict("attachment: not uploaded yet")
    return file


def with_message(file: File, seq: int, expires_at: int | None) -> File:
    """Return the file with a reference from message `seq`.

    `expires_at`: when the message expires; None if it does not. If all messages with the file
    expire, the file is deleted when the last of them expires. A file with more than `SEQS_MAX`
    references is kept even if its messages are deleted.
    """
    if seq in file.seqs:
        return file
    if len(file.seqs) >= SEQS_MAX:
        seq = 0  # no message has this seq, so the reference is never removed
    due = expires_at
    if due is not None and file.seqs:
        due = None if file.due is None else max(file.due, due)
    return dataclasses.replace(file, seqs=file.seqs | {seq}, due=due)


def without_message(file: File, seq: int, now_s: float) -> File:
    """Return the file without the reference from message `seq`.

    If it was the last reference, the deletion time is set to `now_s`.
    """
    if seq not in file.seqs:
        return file
    remaining = file.seqs - {seq}
    return dataclasses.replace(file, seqs=remaining, due=file.due if remaining else int(now_s))
