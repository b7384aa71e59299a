"""Checksums of items of table `messages`: of all that a message says, and of nothing else.

Owns attribute `sum` S, ``<form>.<rev>.<CRC-32, 8 hexadecimal digits>``. It is made from the message
alone, so the same message has the same one in any item; who receives it, what lists it and what
keeps it for a while are no part of it. It tells of what changed without anybody meaning it, not of
who means harm: somebody who may write an item may write its checksum, too.

`rev` says which state of the message was summed. A process of a release that knows no checksums
changes an item and leaves its `sum` as it was: such an item is unverified, not wrong.

Invariant: `FORM` changes when a message gets another field, so that a release which does not know
that field calls the sum unverified.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import msgspec

from chatserver.protocol.frames import Message
from chatserver.warm.client import Item
from chatserver.warm.tables import MessageField as Field

Verdict = Literal["right", "wrong", "unverified"]

FORM: Final = "1"

# Reactions come from DynamoDB in any order.
_encode = msgspec.json.Encoder(order="deterministic").encode


def checksum_of(message: Message) -> str:
    """Return the checksum of a message. About 0.7 µs for 200 bytes."""
    if message.rev == 1:  # as sent: read from an item it is 0
        message = msgspec.structs.replace(message, rev=0)
    return f"{FORM}.{message.rev or 1}.{zlib.crc32(_encode(message)):08x}"


def verify(item: Item, message: Message) -> Verdict:
    """Tell whether an item says what was written; `message` is what it was decoded to."""
    held = item.get(Field.SUM, {}).get("S", "")
    if not held.startswith(f"{FORM}.{message.rev or 1}."):
        return "unverified"
    return "right" if held == checksum_of(message) else "wrong"
