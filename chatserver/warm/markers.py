"""Markers: what stands for a message whose item is not there, and says why.

Owns the partitions ``<chat>#gone`` of table `messages` (ids hold no ``#``, so no chat is called
so), one item for each message that was sent to expire, written together with it, and one for each
place whose message was lost with Redis before it was stored, written when that is found out:

    chatid S "<chat>#gone"  ts N  seq N  mid S  ref S  kind S  author S  ends N (if it expires)
    sum S (of the tombstone that it stands for)

A marker holds nothing that the message said. It has no `expires_at`, so it stays, and neither
`sender_id` nor `status_ts`, so no index holds it. It is the evidence by which a hole in a chat is
told from a message that is not stored yet (promise P6), and the floor of seq and ts when the newest
messages of a chat have expired (promise P3).
"""

from __future__ import annotations

from chatserver.domain.segments import LOST_KIND
from chatserver.errors import CorruptData
from chatserver.protocol.frames import Message
from chatserver.warm.checksums import checksum_of
from chatserver.warm.client import Item
from chatserver.warm.tables import MESSAGES
from chatserver.warm.tables import MessageField as Field

_SUFFIX = "#gone"


def partition_of(chat: str) -> str:
    """Return the partition of a chat's markers."""
    return chat + _SUFFIX


def encode_marker(message: Message) -> Item:
    """Return the marker of a message that expires, or is lost."""
    marker: Item = {
        Field.CHAT: {"S": partition_of(message.chat)},
        Field.TS: {"N": str(message.ts)},
        Field.SEQ: {"N": str(message.seq)},
        Field.MID: {"S": message.mid},
        Field.REF: {"S": message.ref},
        Field.KIND: {"S": message.kind},
        Field.AUTHOR: {"S": message.sender},
    }
    if message.expires_at is not None:
        marker[Field.ENDS] = {"N": str(message.expires_at)}
    marker[Field.SUM] = {"S": checksum_of(decode_marker(marker))}
    return marker


def lost_message(chat: str, seq: int, ts: int) -> Message:
    """Return what stands for a message of which nothing is known but its place."""
    name = f"lost-{seq}"
    return Message(seq, ts, chat, name, "-", name, LOST_KIND, "", deleted=True)


def decode_marker(item: Item) -> Message:
    """Return the tombstone that a marker stands for.

    Raises:
        CorruptData: it is not an item of ours.
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
        raise CorruptData(f"messages: the item at {key} is not a marker: {exc!r}") from exc
