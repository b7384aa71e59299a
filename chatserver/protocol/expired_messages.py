"""Expired messages: replaces them with tombstones on read, in every tier.

From `expires_at` (Unix seconds) on, readers get a tombstone: it is ``deleted``, with the same seq,
ts and ids, but no body. The chat stays contiguous (guarantee P6), and nothing is rewritten.
"""

from __future__ import annotations

from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import build_tombstone

# Quotes in a body are escaped, so a tail (a message's JSON after `ts`) contains these bytes only if
# it has the field `expires_at`.
_MARK = b'"expires_at":'


def has_expired(message: Message, now_s: float) -> bool:
    return message.expires_at is not None and message.expires_at <= now_s


def apply_expiry(message: Message, now_s: float) -> Message:
    """Return the message, or a tombstone if the message has expired."""
    return build_tombstone(message, message.rev) if has_expired(message, now_s) else message


def apply_expiry_to_tail(seq: int, ts: int, tail: bytes, now_s: float) -> bytes:
    """Return `tail` (a message's JSON after `ts`), or a tombstone's if the message has expired.

    Cost: one search for a byte string if the message never expires.
    """
    if _MARK not in tail:
        return tail
    message = codec.decode_message(codec.join_message(seq, ts, tail))
    return codec.encode_tail(apply_expiry(message, now_s)) if has_expired(message, now_s) else tail
