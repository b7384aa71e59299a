"""What a device that shows nothing is told of a chat, and how it wants to be reached. No I/O."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
from typing import Literal

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import BadRequest

Kind = Literal["web", "fcm", "apns"]

ENDPOINT_CHARS_MAX = 1_024
TOKEN_CHARS_MAX = 512
# Of APNs, in hexadecimal: 32 bytes today, of which Apple does not want anybody to be sure.
APNS_BYTES_MIN = 32
APNS_BYTES_MAX = 100
P256DH_BYTES = 65  # an uncompressed point of P-256
AUTH_BYTES = 16
PREVIEW_CHARS_MAX = 200
TITLE_CHARS_MAX = 80
# Push services take 4,096 bytes; encryption adds 103 (RFC 8291: header 86, tag 16, delimiter 1).
PAYLOAD_BYTES_MAX = 3_900
MENTIONS_MAX = 50  # of one message

_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEX = re.compile(rf"[0-9A-Fa-f]{{{2 * APNS_BYTES_MIN},{2 * APNS_BYTES_MAX}}}")
_MENTION = re.compile(r"(?<![A-Za-z0-9_@-])@([A-Za-z0-9_-]{1,64})")


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """One browser or application of a user. Whoever knows `target` can reach it: never logged."""

    id: str
    user: UserId
    kind: Kind
    target: str = dataclasses.field(repr=False)  # endpoint of a browser, token of an application
    p256dh: str = dataclasses.field(default="", repr=False)
    auth: str = dataclasses.field(default="", repr=False)
    device: str | None = None
    created_ms: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """What is said of the newest message that somebody has missed in a chat."""

    chat: ChatId
    seq: Seq
    ts: int
    sender: UserId
    name: str  # of the sender
    title: str  # of the chat; empty: a direct chat
    text: str = dataclasses.field(repr=False)  # empty: there is to be no preview
    unread: int  # in this chat
    badge: int | None  # over all chats; None: not counted

    @property
    def topic(self) -> str:
        """What a later notice of the same chat has, too: it takes the place of this one."""
        # 32 characters of the URL-safe alphabet are what a push service takes (RFC 8030).
        digest = hashlib.blake2b(self.chat.encode(), digest_size=24).digest()
        return base64.urlsafe_b64encode(digest).decode()

    @property
    def headline(self) -> str:
        """Who writes, and where if that is not to us alone."""
        name, title = (shorten(part, TITLE_CHARS_MAX) for part in (self.name, self.title))
        return f"{name} in {title}" if title else name

    @property
    def preview(self) -> str:
        """The beginning of the text; empty if there is to be none."""
        return shorten(self.text, PREVIEW_CHARS_MAX)

    def encode(self) -> bytes:
        """Return it as JSON of at most `PAYLOAD_BYTES_MAX`."""
        fields = {
            "v": 1,
            "chat": self.chat,
            "seq": self.seq,
            "ts": self.ts,
            "sender": self.sender,
            "name": shorten(self.name, TITLE_CHARS_MAX),
            "title": shorten(self.title, TITLE_CHARS_MAX),
            "text": self.preview,
            "unread": self.unread,
            "badge": self.badge,
        }
        encoded = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        if len(encoded) > PAYLOAD_BYTES_MAX:
            raise AssertionError("the bounds of the fields keep it below")
        return encoded


def shorten(text: str, chars_max: int) -> str:
    """Return text on one line, of at most so many characters; an ellipsis stands for the rest."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1].rstrip() + "…"


def mentions_of(body: str) -> list[UserId]:
    """Return the users that a text names as ``@user``, each once, at most `MENTIONS_MAX`."""
    found = dict.fromkeys(UserId(name) for name in _MENTION.findall(body))
    return list(found)[:MENTIONS_MAX]


def subscription_id(kind: Kind, target: str) -> str:
    """Return the id of a subscription: the same browser registers the same one again."""
    return hashlib.blake2b(f"{kind}#{target}".encode(), digest_size=16).hexdigest()


def parse_token(token: str) -> str:
    """Return the registration token of an application. Raises BadRequest."""
    if len(token) > TOKEN_CHARS_MAX or _TOKEN.fullmatch(token) is None:
        raise BadRequest(f"token: must be 1 to {TOKEN_CHARS_MAX} printable ASCII characters")
    return token


def parse_apns_token(token: str) -> str:
    """Return the token that APNs gave to an application, in lower case. Raises BadRequest."""
    shortest, longest = APNS_BYTES_MIN, APNS_BYTES_MAX
    if len(token) % 2 or _HEX.fullmatch(token) is None:
        raise BadRequest(f"token: of APNs must be {shortest} to {longest} bytes in hexadecimal")
    return token.lower()


def parse_key(text: str, field: str, size: int) -> str:
    """Return a key of a browser, base64url without padding.

    Raises:
        BadRequest: it does not stand for `size` bytes.
    """
    bare = text.rstrip("=")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size or (size == P256DH_BYTES and raw[0] != 4):
        raise BadRequest(f"{field}: must be {size} bytes, base64url")
    return bare
