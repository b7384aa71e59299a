"""What an expired message reads as: its tombstone, on time, whatever a tier still holds of it.

A message that ends carries `expires_at`, seconds since 1970. From then on every reader gets a
tombstone in its place: the same seq, ts and names, no body, ``deleted``. So a chat stays contiguous
(promise P6), and nothing has to be rewritten at the moment of expiry. Both forms of a message are
handled here: the struct, and the JSON tail of the hot tier (`chatserver.protocol.codec`).
"""

from __future__ import annotations

from chatserver.protocol import codec
from chatserver.protocol.entries import tombstone_of
from chatserver.protocol.frames import Message

# In a body its quotes are escaped, so a tail that holds this is one of a message that ends.
_MARK = b'"expires_at":'


def has_expired(message: Message, now_s: float) -> bool:
    """Say whether the message's time is over."""
    return message.expires_at is not None and message.expires_at <= now_s


def as_of(message: Message, now_s: float) -> Message:
    """Return the message as it reads now: itself, or its tombstone."""
    return tombstone_of(message, message.rev) if has_expired(message, now_s) else message


def tail_as_of(seq: int, ts: int, tail: bytes, now_s: float) -> bytes:
    """Return a message's tail as it reads now. One that does not expire costs a search of bytes."""
    if _MARK not in tail:
        return tail
    message = codec.decode_message(codec.join_message(seq, ts, tail))
    return codec.tail_of(as_of(message, now_s)) if has_expired(message, now_s) else tail
