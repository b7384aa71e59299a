"""Id types, and the grammar that makes ids safe in keys.

Every external id matches ``[A-Za-z0-9_-]{1,64}``. It therefore contains no ``#`` (DynamoDB sort
keys), no ``{`` or ``}`` (Redis hash tags), no ``:`` (Redis keys) and no control character, so keys
built from ids are unambiguous.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from typing import Final, NewType

from ulid import ULID

from chatserver.errors import BadRequest

UserId = NewType("UserId", str)
ChatId = NewType("ChatId", str)
DeviceId = NewType("DeviceId", str)
SessionId = NewType("SessionId", str)
GatewayId = NewType("GatewayId", str)
Ref = NewType("Ref", str)  # the client's reference for a request, which makes it idempotent
Mid = NewType("Mid", str)  # the server's id of a message, a ULID
Epoch = NewType("Epoch", str)  # identifies Redis data; changes when Redis may have lost writes
Seq = NewType("Seq", int)  # position in a chat or an inbox: 1, 2, 3 …
Ts = NewType("Ts", int)  # microseconds since 1970, unique and ascending within a chat

SYSTEM_USER = UserId("system")  # sender of the host application's messages

ID_CHARS_MAX = 64
# The pattern is valid in JSON Schema and msgspec too. In Python, a bare `$` would also match before
# a trailing newline.
ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}(?![\s\S])"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

DIRECT_PREFIX = "d-"
GROUP_PREFIX = "g-"


def parse_id(text: str, field: str) -> str:
    """Return `text` if it is an id.

    Raises:
        BadRequest: `text` is not an id.
    """
    if _ID.fullmatch(text) is None:
        raise BadRequest(f"{field}: must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    return text


def direct_chat_id(a: UserId, b: UserId) -> ChatId:
    """Return the id of the direct chat between two users, who may be given in either order."""
    pair = "#".join(sorted((a, b)))  # '#' is in no id, so no two pairs have the same text
    digest = hashlib.blake2b(pair.encode(), digest_size=20).digest()
    return ChatId(DIRECT_PREFIX + base64.b32encode(digest).decode().lower())


def derived_chat_id(creator: UserId, ref: Ref) -> ChatId:
    """Return the id of the group that `creator` created with `ref`; a retry gets the same id."""
    digest = hashlib.blake2b(f"{creator}#{ref}".encode(), digest_size=20).digest()
    return ChatId(GROUP_PREFIX + base64.b32encode(digest).decode().lower())


ULID_TIME_CHARS: Final = 10  # number of characters of the timestamp; the rest of a ULID is random


def new_id() -> str:
    """Return a new ULID."""
    return str(ULID())


def parse_mid(text: str) -> tuple[Mid, int]:
    """Parse a message id; return `(mid, creation time in ms since 1970)`.

    Raises:
        BadRequest: the text is not a ULID.
    """
    try:
        ulid = ULID.from_str(text.upper())
    except ValueError:
        raise BadRequest("mid: must be a ULID, 26 characters") from None
    return Mid(str(ulid)), ulid.milliseconds


def epoch_start_ms(epoch: Epoch) -> int:
    """Return the start of an epoch (ms since 1970, Redis clock); 0 if `epoch` is not a ULID."""
    try:
        return ULID.from_str(epoch).milliseconds
    except ValueError:
        return 0


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


STEM_S_MAX = 1.0


class MidSource:
    """Generates message ids: ULIDs whose creation time is accurate to one second.

    For speed, up to 1,024 ids per second are derived from one ULID, by changing its last two
    characters.
    """

    def __init__(self) -> None:
        self._stem = ""
        self._used = len(_PAIRS)
        self._until = 0.0  # monotonic time (s) after which `next` creates a new `_stem`

    def next(self) -> Mid:
        """Return an id that has never been returned before."""
        now = time.monotonic()
        if self._used >= len(_PAIRS) or now > self._until:
            self._until = now + STEM_S_MAX
            # Do not use `ULID()`: within a millisecond, it only increments the last characters,
            # which are cut off here.
            ms = int(time.time() * 1000)
            self._stem = str(ULID.from_bytes(ms.to_bytes(6, "big") + os.urandom(10)))[:-2]
            self._used = 0
        pair = _PAIRS[self._used]
        self._used += 1
        return Mid(self._stem + pair)
