"""Removal markers: items that take the place of expired and lost messages.

Owns the partitions ``<chat>#gone`` in table `messages`; ids contain no ``#``, so no chat has such
an id. An expiring message gets its marker when it is stored. An entry that Redis lost before it was
stored gets its marker when the loss is detected:

    chatid S "<chat>#gone"  ts N  seq N  mid S  ref S  kind S  author S  ends N (if it expires)
    sum S (checksum of the decoded tombstone)

A marker contains no message content. It has no `expires_at`, so it is not deleted, and no
`sender_id` or `status_ts`, so it is in no index. It distinguishes a removed message from one that
has not been stored yet (guarantee P6). If a chat's newest messages have expired, new seqs and
timestamps continue from the markers (guarantee P3).
"""

from __future__ import annotations

from chatserver.domain.archive_segments import LOST_KIND
from chatserver.errors import CorruptData
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages.checksums import compute_checksum
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

_SUFFIX = "#gone"


def get_partition(chat: str) -> str:
    """Return the partition key for a chat's markers."""
    return chat + _SUFFIX


def encode_marker(message: Message) -> Item:
    """Return the marker item for an expiring or lost message."""
    marker: Item = {
        Field.CHAT: {"S": get_partition(message.chat)},
        Field.TS: {"N": str(message.ts)},
        Field.SEQ: {"N": str(message.seq)},
        Field.MID: {"S": message.mid},
        Field.REF: {"S": message.ref},
        Field.KIND: {"S": message.kind},
        Field.AUTHOR: {"S": message.sender},
    }
    if message.expires_at is not None:
        marker[Field.ENDS] = {"N": str(message.expires_at)}
    marker[Field.SUM] = {"S": compute_checksum(decode_marker(marker))}
    return marker


def build_lost_message(chat: str, seq: int, ts: int) -> Message:
    """Return the tombstone for a lost message. Only the message's seq and ts are known."""
    name = f"lost-{seq}"
    return Message(
        seq=seq,
        ts=ts,
        chat=chat,
        mid=name,
        sender="-",
        ref=name,
        kind=LOST_KIND,
        body="",
        deleted=True,
    )


def decode_marker(item: Item) -> Message:
    """Decode a marker into a tombstone.

    Raises:
        CorruptData: the item is not a valid marker.
    """
    try:
        ends = item.get(Field.ENDS)
        return Message(
            seq=int(item[Field.SEQ]["N"]),
            ts=int(item[Field.TS]["N"]),
            chat=item[Field.CHAT]["S"].removesuffix(_SUFFIX),
            mid=item[Field.MID]["S"],
            sender=item[Field.AUTHOR]["S"],
            ref=item[Field.REF]["S"],
            kind=item[Field.KIND]["S"],
            body="",
            deleted=True,
            expires_at=None if ends is None else int(ends["N"]),
        )
    except (KeyError, ValueError) as exc:
        key = {name: item.get(name) for name in MESSAGES.key.names}
        raise CorruptData(
            f"table messages: the item at {key} is not a valid marker: {exc!r}"
        ) from exc
