"""Push subscriptions and the content of pushes. No I/O."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
from typing import Any, Literal

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.text.graphemes import truncate
from chatserver.errors import BadRequest

SUBSCRIPTIONS_MAX = 10

Kind = Literal["web", "fcm", "apns"]

ENDPOINT_CHARS_MAX = 1_024
TOKEN_CHARS_MAX = 512
# APNs tokens currently have 32 bytes, but Apple does not guarantee this length.
APNS_BYTES_MIN = 32
APNS_BYTES_MAX = 100
P256DH_BYTES = 65  # size of an uncompressed P-256 point
AUTH_BYTES = 16
MENTIONS_MAX = 50
PREVIEW_CHARS_MAX = 200
TITLE_CHARS_MAX = 80
# Push services accept 4,096 bytes; encryption adds 103 (RFC 8291: header 86, tag 16, delimiter 1).
PAYLOAD_BYTES_MAX = 3_900

_MENTION = re.compile(r"(?<![A-Za-z0-9_@-])@([A-Za-z0-9_-]{1,64})")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEX = re.compile(rf"[0-9A-Fa-f]{{{2 * APNS_BYTES_MIN},{2 * APNS_BYTES_MAX}}}")


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """A browser or application of a user. `target` is secret: do not log it."""

    id: str
    user: UserId
    kind: Kind
    target: str = dataclasses.field(repr=False)  # browser endpoint or application token
    p256dh: str = dataclasses.field(default="", repr=False)
    auth: str = dataclasses.field(default="", repr=False)
    device: str | None = None
    created_ms: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Content of a push: the newest unread message in a chat."""

    chat: ChatId
    seq: Seq
    ts: int
    sender: UserId
    name: str  # name of the sender
    title: str  # title of the chat; empty for a direct chat
    text: str = dataclasses.field(repr=False)  # empty if previews are off
    unread: int  # unread messages in this chat
    badge: int | None  # unread messages in all chats; None: not counted

    @property
    def topic(self) -> str:
        """Collapse key. A later notice for the same chat replaces this notice."""
        # Push services accept up to 32 base64url characters (RFC 8030).
        digest = hashlib.blake2b(self.chat.encode(), digest_size=24).digest()
        return base64.urlsafe_b64encode(digest).decode()

    @property
    def headline(self) -> str:
        """Name of the sender, followed by the chat title unless it is a direct chat."""
        name, title = (truncate_text(part, TITLE_CHARS_MAX) for part in (self.name, self.title))
        return f"{name} in {title}" if title else name

    @property
    def preview(self) -> str:
        """Beginning of the message text; empty if previews are off."""
        return truncate_text(self.text, PREVIEW_CHARS_MAX)

    def encode(self) -> bytes:
        """Return the notice as JSON of at most `PAYLOAD_BYTES_MAX` bytes."""
        fields = {
            "v": 1,
            "chat": self.chat,
            "seq": self.seq,
            "ts": self.ts,
            "sender": self.sender,
            "name": truncate_text(self.name, TITLE_CHARS_MAX),
            "title": truncate_text(self.title, TITLE_CHARS_MAX),
            "text": self.preview,
            "unread": self.unread,
            "badge": self.badge,
        }
        return encode_payload(fields, PAYLOAD_BYTES_MAX)


def encode_payload(fields: dict[str, Any], bytes_max: int) -> bytes:
    """Encode the payload of a push as JSON. The limits on its texts keep it below `bytes_max`."""
    encoded = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    if len(encoded) > bytes_max:
        raise AssertionError(f"the encoded push is larger than {bytes_max} bytes")
    return encoded


def find_mentions(body: str) -> list[UserId]:
    """Return up to `MENTIONS_MAX` users mentioned as ``@user``, without duplicates.

    In a large group, only mentioned users get a push.
    """
    mentions = dict.fromkeys(UserId(name) for name in _MENTION.findall(body))
    return list(mentions)[:MENTIONS_MAX]


def truncate_text(text: str, chars_max: int) -> str:
    """Return the text on one line, truncated to `chars_max` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else truncate(line, chars_max - 1).rstrip() + "…"


def subscription_id(kind: Kind, target: str) -> str:
    """Return the subscription id, which is a hash of the target."""
    return hashlib.blake2b(f"{kind}#{target}".encode(), digest_size=16).hexdigest()


def parse_token(token: str) -> str:
    """Validate the FCM registration token of an application. Raises BadRequest."""
    if len(token) > TOKEN_CHARS_MAX or _TOKEN.fullmatch(token) is None:
        raise BadRequest(f"token: must be 1 to {TOKEN_CHARS_MAX} printable ASCII characters")
    return token


def parse_apns_token(token: str) -> str:
    """Validate an APNs token and return it in lower case. Raises BadRequest."""
    shortest, longest = APNS_BYTES_MIN, APNS_BYTES_MAX
    if len(token) % 2 or _HEX.fullmatch(token) is None:
        raise BadRequest(
            f"token: an APNs token must have {shortest} to {longest} bytes in hexadecimal"
        )
    return token.lower()


def parse_key(text: str, field: str, size: int) -> str:
    """Validate a browser key and return it as base64url without padding.

    Raises:
        BadRequest: the key does not decode to `size` bytes.
    """
    bare = text.rstrip("=")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size or (size == P256DH_BYTES and raw[0] != 4):
        raise BadRequest(f"{field}: must have {size} bytes in base64url")
    return bare
