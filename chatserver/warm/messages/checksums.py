"""Checksums of items in table `messages`, computed from the message only.

Owns attribute `sum` S, ``<form>.<rev>.<CRC-32, 8 hexadecimal digits>``. Equal messages have equal
checksums; the item's receiver, index keys and TTL are not included. Checksums detect
accidental changes, not malicious ones: a writer of the item can also write its checksum.

`rev` is the item's revision when the checksum was computed. A release without checksums may change
an item but not its `sum`. Such an item counts as unverified, not as wrong.

Invariant: `FORM` changes when messages get another field, so that a release without that field
treats the item as unverified.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import msgspec

from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import MessageField as Field

Verdict = Literal["right", "wrong", "unverified"]

FORM: Final = "1"

# Encode maps, such as reactions, in sorted order, because DynamoDB returns them in any order.
_encode = msgspec.json.Encoder(order="deterministic").encode


def compute_checksum(message: Message) -> str:
    if message.rev == 1:  # `decode_item` decodes `rev` 1 of an unchanged message as 0
        message = msgspec.structs.replace(message, rev=0)
    if message.shredded:  # the checksum does not cover this field
        message = msgspec.structs.replace(message, shredded=False)
    return f"{FORM}.{message.rev or 1}.{zlib.crc32(_encode(message)):08x}"


def verify(item: Item, message: Message) -> Verdict:
    """Verify an item's checksum. `message` is the message decoded from the item."""
    stored = item.get(Field.SUM, {}).get("S", "")
    if not stored.startswith(f"{FORM}.{message.rev or 1}."):
        return "unverified"
    return "right" if stored == compute_checksum(message) else "wrong"
