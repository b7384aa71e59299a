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

import contextlib
import dataclasses
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.archive_segments import Restored
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.errors import Conflict, CorruptData, LostRace
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, iter_pages, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField
from chatserver.warm.schema.tables import SegmentField as Field

_DUE: Final = "a#restored"
_PREFIX: Final = "r#"
RANGES_END: Final = "r$"  # '$' sorts right after '#'


@dataclasses.dataclass(frozen=True, slots=True)
class DueChat:
    """A chat with restored ranges, the last of which was added at `at_ms`."""

    chat: ChatId
    at_ms: int


def is_range(row: Item) -> bool:
    """Return whether an item in partition ``a#<chat>`` is a restored range."""
    return bool(row[DirectoryField.SK]["S"].startswith(_PREFIX))


def decode_range(row: Item) -> Restored:
    """Decode a restored range. Raises CorruptData."""
    try:
        return Restored(
            first=Seq(int(row[Field.FIRST]["N"])),
            last=Seq(int(row[Field.LAST]["N"])),
            first_ts=Ts(int(row[Field.FIRST_TS]["N"])),
            last_ts=Ts(int(row[Field.LAST_TS]["N"])),
            until=int(row[Field.UNTIL]["N"]),
            done=int(row[Field.DONE]["N"]),
            is_ending=Field.IS_ENDING in row,
        )
    except (KeyError, ValueError) as exc:
        key = {name: row.get(name) for name in DIRECTORY.key.names}
        raise CorruptData(
            f"table directory: the item at {key} is not a restored range: {exc!r}"
        ) from exc


class RestoredRows:
    """Repository of restored ranges. `Manifests.get_top` reads them."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def begin(self, chat: str, wanted: Restored, at_ms: int) -> Restored:
        """Create a range, or extend an existing one; return the resulting range.

        Guarantees:
            Idempotent: an existing range keeps its progress and is never shortened.

        Raises:
            Conflict: the range is ending, or was changed concurrently.
        """
        key = build_key(chat, wanted)
        row = await find_item(self._client, self._table, key)
        restored = None if row is None else decode_range(row)
        if restored is not None and restored.is_ending:
            raise LostRace("the restored range is being deleted; try again later")
        if restored is not None:
            wanted = dataclasses.replace(restored, until=max(restored.until, wanted.until))
        put: dict[str, Any] = {"TableName": self._table, "Item": key | encode_restored(wanted)}
        if restored is None:
            put["ConditionExpression"] = "attribute_not_exists(#first)"
            put["ExpressionAttributeNames"] = {"#first": Field.FIRST}
        else:
            put |= _make_unchanged_condition(restored, is_whole=True)
        due = row_key(_DUE, f"{_DUE}#{chat}") | {Field.AT: {"N": str(at_ms)}}
        actions = [{"Put": put}, {"Put": {"TableName": self._table, "Item": due}}]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            raise LostRace("the restored range was changed concurrently; try again") from exc
        return wanted

    async def record_done(self, chat: str, restored: Restored, done: int) -> None:
        """Record the seq up to which a range has been restored.

        Raises:
            Conflict: the range is ending or deleted.
        """
        request = {
            "TableName": self._table,
            "Key": build_key(chat, restored),
            "UpdateExpression": "SET #done = :done",
            "ConditionExpression": "attribute_exists(#first) AND attribute_not_exists(#ending)",
            "ExpressionAttributeNames": {
                "#done": Field.DONE,
                "#first": Field.FIRST,
                "#ending": Field.IS_ENDING,
            },
            "ExpressionAttributeValues": {":done": {"N": str(done)}},
        }
        try:
            await self._client.call("update_item", request)
        except ConditionFailed as exc:
            raise Conflict("the restored range was deleted concurrently") from exc

    async def mark_ending(self, chat: str, restored: Restored) -> bool:
        """Mark a range as ending; return False if it has been extended."""
        names = {"#ending": Field.IS_ENDING}
        condition = _make_unchanged_condition(restored)
        condition["ExpressionAttributeNames"] |= names
        condition["ExpressionAttributeValues"] |= {":yes": {"BOOL": True}}
        request = {
            "TableName": self._table,
            "Key": build_key(chat, restored),
            "UpdateExpression": "SET #ending = :yes",
            **condition,
        }
        return await write_conditionally(self._client, "update_item", request)

    async def delete(self, chat: str, restored: Restored) -> None:
        """Delete an ending range whose items have been deleted. Idempotent."""
        request = {
            "TableName": self._table,
            "Key": build_key(chat, restored),
            "ConditionExpression": "attribute_exists(#ending)",
            "ExpressionAttributeNames": {"#ending": Field.IS_ENDING},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("delete_item", request)

    async def list_due(self) -> list[DueChat]:
        """Return the chats that have restored ranges."""
        request = {**Span(DIRECTORY, _DUE).query(self._settings), "ConsistentRead": True}
        due: list[DueChat] = []
        async for rows in iter_pages(self._client, "query", request):
            for row in rows:
                chat = ChatId(row[DirectoryField.SK]["S"].removeprefix(f"{_DUE}#"))
                due.append(DueChat(chat, int(row[Field.AT]["N"])))
        return due

    async def delete_due(self, due: DueChat) -> None:
        """Remove a chat from `list_due`, unless a range has been added since `due` was read."""
        request = {
            "TableName": self._table,
            "Key": row_key(_DUE, f"{_DUE}#{due.chat}"),
            "ConditionExpression": "#at = :at",
            "ExpressionAttributeNames": {"#at": Field.AT},
            "ExpressionAttributeValues": {":at": {"N": str(due.at_ms)}},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("delete_item", request)


def build_key(chat: str, restored: Restored) -> Item:
    return row_key(f"a#{chat}", f"{_PREFIX}{restored.first:020d}#{restored.last:020d}")


def encode_restored(restored: Restored) -> Item:
    numbers = {
        Field.FIRST: restored.first,
        Field.LAST: restored.last,
        Field.FIRST_TS: restored.first_ts,
        Field.LAST_TS: restored.last_ts,
        Field.UNTIL: restored.until,
        Field.DONE: restored.done,
    }
    return {name: {"N": str(value)} for name, value in numbers.items()}


def _make_unchanged_condition(restored: Restored, *, is_whole: bool = False) -> dict[str, Any]:
    """Return the condition that a range's `until` is unchanged.

    With `is_whole`, `done` must also be unchanged, and the range must not be ending.
    """
    names = {"#until": Field.UNTIL}
    values: Item = {":until": {"N": str(restored.until)}}
    condition = "#until = :until"
    if is_whole:
        names |= {"#held": Field.DONE, "#gone": Field.IS_ENDING}
        values[":held"] = {"N": str(restored.done)}
        condition += " AND #held = :held AND attribute_not_exists(#gone)"
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
