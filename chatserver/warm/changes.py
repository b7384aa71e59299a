"""Changes to messages that the warm tier has: edits, deletes and reactions, applied by seq.

Owns nothing: the items are those of `chatserver.warm.messages`. An item is read, changed by the one
rule (`chatserver.protocol.entries`) and written if nobody changed it meanwhile. A repeat, or an
older change that comes late, does nothing: all orders end with the same item.

An entry that is in the archive gets an item again, as it is after the change: who reads the archive
lays it over the segment, and the archive worker writes it into the segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from chatserver.config import Warm
from chatserver.errors import Unavailable
from chatserver.protocol.entries import apply_entry, tombstone_of
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm import versions
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.messages import PersistItem, decode_item, encode_item
from chatserver.warm.tables import MESSAGES
from chatserver.warm.tables import MessageField as Field

TRIES_MAX = 8

_NEW = {Field.FILES_OF: versions.FILES}  # the schema that brought an attribute
_ALL = {name for constant, name in vars(Field).items() if constant.isupper()}


class Archived(Protocol):
    """Entries that were moved to the archive."""

    async def find_at(self, chat: str, ts: int) -> Message | None: ...

    async def note_late(self, chat: str) -> None: ...


Release = Callable[[int, Sequence[Attachment]], Awaitable[None]]


class MessageChanges:
    """Changes items of table `messages`."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        release: Release | None = None,
        archived: Archived | None = None,
    ) -> None:
        """`release` hears of the files that a message is about to lose, as often as it is tried."""
        self._client = client
        self._archived = archived
        self._release = release
        self._table = MESSAGES.name_in(settings)
        self._schema = versions.acting_version(settings)

    async def apply(self, chat: str, ts: int, entries: Sequence[Message]) -> None:
        """Apply entries, in rising seq, to the message at `ts`; nothing if it is in no tier.

        Guarantees:
            Idempotent, and an entry that is not newer than the item's `rev` does nothing.
            Cancellation: safe; all of them are applied, or none.
            Cost: one GetItem and one UpdateItem, however many entries; of one that is archived,
                what reading it there costs, and two writes.

        Raises:
            Unavailable: it may be applied, or not.
        """

        def change(message: Message) -> Message:
            for entry in entries:
                message = apply_entry(message, entry)
            return message

        await self._change(chat, ts, change)

    async def revive(self, item: PersistItem) -> bool:
        """Store an entry where a tombstone stands in its place; False if that changed or is gone.

        Such a tombstone is written for what could not be persisted: its `rev` is its own seq.

        Guarantees:
            Idempotent: True again. Nothing that came later is overwritten.

        Raises:
            CorruptData: the entry cannot be stored as it is.
            Unavailable: it may be stored, or not.
        """
        encoded = encode_item(item, self._schema)
        request = {
            "TableName": self._table,
            "Item": encoded,
            "ConditionExpression": (
                "(#rev = :seq AND #deleted = :yes) OR (#mid = :mid AND #rev = :rev)"
            ),
            "ExpressionAttributeNames": {
                "#rev": Field.REV,
                "#deleted": Field.DELETED,
                "#mid": Field.MID,
            },
            "ExpressionAttributeValues": {
                ":seq": {"N": str(item.message.seq)},
                ":yes": {"BOOL": True},
                ":mid": encoded[Field.MID],
                ":rev": encoded[Field.REV],
            },
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed:
            return False
        return True

    async def blank(self, chat: str, ts: int, rev: int) -> None:
        """Take the text from the edit at `ts`, which entry `rev` replaced. As `apply`."""

        def change(entry: Message) -> Message:
            return tombstone_of(entry, rev) if entry.rev < rev else entry

        await self._change(chat, ts, change)

    async def _change(self, chat: str, ts: int, change: Callable[[Message], Message]) -> None:
        key: Item = {Field.CHAT: {"S": chat}, Field.TS: {"N": str(ts)}}
        place = {"TableName": self._table, "Key": key}
        for _ in range(TRIES_MAX):
            answer = await self._client.call("get_item", {**place, "ConsistentRead": True})
            item: Item | None = answer.get("Item")
            message = await self._find_archived(chat, ts) if item is None else decode_item(item)
            if message is None:
                return
            changed = change(message)
            if changed == message:
                return
            if self._release is not None and message.attachments and not changed.attachments:
                # First: a message without its files names none of them to the next try.
                await self._release(message.seq, message.attachments)
            try:
                if item is None:
                    await self._put_late(changed)
                else:
                    update = _difference(item, changed, self._schema)
                    await self._client.call("update_item", {**place, **update})
            except ConditionFailed:
                continue
            return
        raise Unavailable(f"message at {ts} of {chat}: others keep changing it")

    async def _find_archived(self, chat: str, ts: int) -> Message | None:
        return None if self._archived is None else await self._archived.find_at(chat, ts)

    async def _put_late(self, changed: Message) -> None:
        """Lay an item over an entry of the archive. Raises ConditionFailed: it has one by now."""
        if self._archived is not None:
            await self._archived.note_late(changed.chat)
        request = {
            "TableName": self._table,
            "Item": encode_item(PersistItem(changed, None), self._schema),
            "ConditionExpression": "attribute_not_exists(#chat)",
            "ExpressionAttributeNames": {"#chat": Field.CHAT},
        }
        await self._client.call("put_item", request)


def _difference(item: Item, changed: Message, schema: int) -> dict[str, Any]:
    """Return the update that makes `item` store `changed`, if it still is at its `rev`.

    What a newer release put into the item stays: this one cannot know what it is for.
    """
    receiver = item.get(Field.RECEIVER)
    user = None if receiver is None else str(receiver["S"])
    wanted = encode_item(PersistItem(changed, user), schema)
    new = {name: value for name, value in wanted.items() if item.get(name) != value}
    known = _known(schema)
    # What a migration fills may have come since the item was read: that is no change of its `rev`.
    there = dict.fromkeys([*item, *_NEW])
    gone = [name for name in there if name not in wanted and name in known]
    names = {f"#{n}": name for n, name in enumerate([*new, *gone])}
    sets = ", ".join(f"#{n} = :{n}" for n in range(len(new)))
    removes = ", ".join(f"#{len(new) + n}" for n in range(len(gone)))
    return {
        "UpdateExpression": f"SET {sets}" + (f" REMOVE {removes}" if gone else ""),
        "ConditionExpression": "#rev = :rev",
        "ExpressionAttributeNames": {**names, "#rev": Field.REV},
        "ExpressionAttributeValues": {
            **{f":{n}": value for n, value in enumerate(new.values())},
            ":rev": item[Field.REV],
        },
    }


def _known(schema: int) -> set[str]:
    """Return the attributes that a release of this schema knows."""
    return {name for name in _ALL if _NEW.get(name, 0) <= schema}
