"""Restored ranges: archived entries that are temporarily restored, in table `directory`.

| record | `PK`         | `SK`                  | attributes                                    |
|--------|--------------|-----------------------|-----------------------------------------------|
| range  | `a#<chat>`   | `r#<first>#<last>`    | `first last first_ts last_ts until done`,     |
|        |              |                       | `ending` (optional)                           |
| due    | `a#restored` | `a#restored#<chat>`   | `at`: when the chat's last range was added    |

While entries are being restored, `done` increases to `last`. After `until`, the range is marked as
*ending*, unless it has been extended. Then its restored items are deleted, and finally the range.
An ending range cannot be extended, so no item in an extended range is deleted.

The transaction that adds a range also writes the chat's due record, which cleanup uses to find the
chat. Cleanup deletes the due record only if no range has been added since it read the record.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from chatserver.domain.archive_segments import Restored
from chatserver.domain.ids import ChatId
from chatserver.errors import Conflict, LostRace
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr, Attributes
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField
from chatserver.warm.schema.tables import SegmentField as Field

_DUE: Final = "a#restored"
_PREFIX: Final = "r#"
RANGES_END: Final = "r$"  # '$' sorts right after '#'


class PendingChat(NamedTuple):
    """A chat in a `PendingChats`, last recorded at `at_ms`."""

    chat: ChatId
    at_ms: int


class PendingChats:
    """Chats that the archive worker has to process: one partition, with a record for each chat."""

    def __init__(self, table: Table, partition: str) -> None:
        self._table = table
        self._partition = partition

    def build_record(self, chat: str, at_ms: int) -> tuple[Key, Attributes]:
        """Return the key and attributes that list a chat."""
        return (self._partition, f"{self._partition}#{chat}"), {Field.AT: at_ms}

    async def list_all(self) -> list[PendingChat]:
        pages = self._table.iter_query(Span(DIRECTORY, self._partition))
        prefix = f"{self._partition}#"
        return [
            PendingChat(
                ChatId(row[DirectoryField.SK]["S"].removeprefix(prefix)), get_number(row, Field.AT)
            )
            async for rows in pages
            for row in rows
        ]

    async def delete(self, listed: PendingChat) -> None:
        """Delete a chat's record, unless it has been recorded again since `listed` was read."""
        key, _ = self.build_record(listed.chat, listed.at_ms)
        await try_write(self._table.delete(key, if_=Attr(Field.AT) == listed.at_ms))


def is_range(row: Item) -> bool:
    """Return whether an item in partition ``a#<chat>`` is a restored range."""
    return bool(row[DirectoryField.SK]["S"].startswith(_PREFIX))


RANGE: Final = Codec(
    Restored,
    "a#{chat}",
    "r#{first:020d}#{last:020d}",
    first=Field.FIRST,
    last=Field.LAST,
    first_ts=Field.FIRST_TS,
    last_ts=Field.LAST_TS,
    until=Field.UNTIL,
    done=Field.DONE,
    is_ending=StoredField(Field.IS_ENDING, absent=False),
)


class RestoredRanges:
    """Repository of restored ranges. `Manifests.get_top` reads them."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self.due = PendingChats(self._table, _DUE)

    async def begin(self, chat: str, requested: Restored, at_ms: int) -> Restored:
        """Create a range, or extend an existing one; return the resulting range.

        Guarantees:
            Idempotent: an existing range keeps its progress and is never shortened.

        Raises:
            Conflict: the range is ending, or was changed concurrently.
        """
        row = await self._table.find(_build_key(chat, requested))
        restored = None if row is None else RANGE.decode(row)
        if restored is not None and restored.is_ending:
            raise LostRace("the restored range is being deleted; try again later")
        if restored is not None:
            requested = dataclasses.replace(restored, until=max(restored.until, requested.until))
        is_unchanged = Attr(Field.FIRST).is_absent
        if restored is not None:
            is_unchanged = (
                (Attr(Field.UNTIL) == restored.until)
                & (Attr(Field.DONE) == restored.done)
                & Attr(Field.IS_ENDING).is_absent
            )
        actions = [
            self._table.put_action(RANGE.encode(requested, chat=chat), if_=is_unchanged),
            self._table.put_action(*self.due.build_record(chat, at_ms)),
        ]
        try:
            await self._client.transact(actions)
        except ConditionFailed as exc:
            raise LostRace("the restored range was changed concurrently; try again") from exc
        return requested

    async def record_done(self, chat: str, restored: Restored, done: int) -> None:
        """Record the seq up to which a range has been restored.

        Raises:
            Conflict: the range is ending or deleted.
        """
        is_kept = Attr(Field.FIRST).exists & Attr(Field.IS_ENDING).is_absent
        try:
            await self._table.update(_build_key(chat, restored), {Field.DONE: done}, if_=is_kept)
        except ConditionFailed as exc:
            raise Conflict("the restored range was deleted concurrently") from exc

    async def mark_ending(self, chat: str, restored: Restored) -> bool:
        """Mark a range as ending; return False if it has been extended."""
        key, is_unchanged = _build_key(chat, restored), Attr(Field.UNTIL) == restored.until
        return await try_write(self._table.update(key, {Field.IS_ENDING: True}, if_=is_unchanged))

    async def delete(self, chat: str, restored: Restored) -> None:
        """Delete an ending range whose items have been deleted. Idempotent."""
        key, is_ending = _build_key(chat, restored), Attr(Field.IS_ENDING).exists
        await try_write(self._table.delete(key, if_=is_ending))


def _build_key(chat: str, restored: Restored) -> Key:
    return RANGE.key(chat=chat, first=restored.first, last=restored.last)
