"""State of the analytics export in the `directory` table.

| record  | `PK`       | `SK`                          | attributes                               |
|---------|------------|-------------------------------|------------------------------------------|
| unit    | `x#<chat>` | `p#<first, 20 digits>#<chat>` | `first last batch`; after the files are  |
|         |            |                               | written, `sha256 version`                |
| segment | `a#<chat>` | `s#<last, 20 digits>#<chat>`  | `exported` (BOOL)                        |

`chatserver.warm.archive.manifests` owns the segments. Writing a segment replaces its item, so a new
or changed segment has no `exported`. A scan for segments without this attribute finds everything
that must be exported, even after a crash.

Invariants: the units of a chat cover seqs 1 to `last` of the newest unit, without overlap or gap: a
new unit starts after the newest one, and `claim` fails if a unit with the same `first` exists. The
range and batch of a unit never change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.domain.ids import ChatId
from chatserver.errors import CorruptData, LostRace
from chatserver.features.analytics.model import Unit
from chatserver.features.analytics.tables import ExportField as Field
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import iter_pages, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

_UNIT_PREFIX: Final = "p#"
_ARCHIVE_PREFIX: Final = "a#"
_SEGMENT_PREFIX: Final = "s#"
_PAGE: Final = 32  # maximum units per Query


class NewSegment(NamedTuple):
    """An archive segment that must be exported."""

    chat: ChatId
    first: int
    last: int
    tag: str


class ExportRows:
    """Reads and writes the export state."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    # Segments

    async def list_segments(
        self, start: Item | None, *, is_all: bool
    ) -> tuple[list[NewSegment], Item | None]:
        """Return one page of archive segments, and the start key of the next page.

        Without `is_all`, segments that have already been exported are left out. The segments of
        each chat are in ascending order. A scan costs 128 read units per 8,000 items.
        """
        condition = "begins_with(#pk, :archive) AND begins_with(#sk, :segment)"
        names = {"#pk": Field.PK, "#sk": Field.SK}
        if not is_all:
            condition += " AND attribute_not_exists(#exported)"
            names["#exported"] = Field.EXPORTED
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {
                ":archive": {"S": _ARCHIVE_PREFIX},
                ":segment": {"S": _SEGMENT_PREFIX},
            },
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        response = await self._client.call("scan", request)
        return [_decode_segment(row) for row in response["Items"]], response.get("LastEvaluatedKey")

    async def mark_exported(self, segment: NewSegment) -> bool:
        """Mark a segment as exported; return False if it has been replaced since it was read."""
        request = {
            "TableName": self._table,
            "Key": row_key(
                _ARCHIVE_PREFIX + segment.chat,
                f"{_SEGMENT_PREFIX}{segment.last:020d}#{segment.chat}",
            ),
            "UpdateExpression": "SET #exported = :yes",
            "ConditionExpression": "#tag = :tag",
            "ExpressionAttributeNames": {"#exported": Field.EXPORTED, "#tag": Field.TAG},
            "ExpressionAttributeValues": {":yes": {"BOOL": True}, ":tag": {"S": segment.tag}},
        }
        return await write_conditionally(self._client, "update_item", request)

    # All reads of units are strongly consistent.

    async def claim(self, unit: Unit) -> None:
        """Create a unit, a range of entries to export. Call this before reading them. Idempotent.

        Raises:
            LostRace: another process has created a unit that starts at the same seq.
        """
        request = {
            "TableName": self._table,
            "Item": encode_unit(unit),
            "ConditionExpression": "attribute_not_exists(#pk) OR #batch = :batch",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#batch": Field.BATCH},
            "ExpressionAttributeValues": {":batch": {"S": unit.batch}},
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed as exc:
            raise LostRace(f"analytics: another process is exporting chat {unit.chat}") from exc

    async def record(self, unit: Unit, sha256: str, version: str) -> None:
        """Record the SHA-256 of a unit's exported rows, and the version of the data read for them.

        Idempotent.
        """
        request = {
            "TableName": self._table,
            "Key": _unit_key(unit.chat, unit.first),
            "UpdateExpression": "SET #sha256 = :sha256, #version = :version",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#pk": Field.PK,
                "#sha256": Field.SHA256,
                "#version": Field.VERSION,
            },
            "ExpressionAttributeValues": {
                ":sha256": {"S": sha256},
                ":version": {"S": version},
            },
        }
        await self._client.call("update_item", request)

    async def iter_units_down(self, chat: str, seq: int | None = None) -> AsyncIterator[list[Unit]]:
        """Yield pages of a chat's units (exported ranges of entries), newest first.

        With `seq`, omit units that start above it.
        """
        to = f"{_UNIT_PREFIX}{seq + 1:020d}" if seq is not None else "p$"  # '$' follows '#'
        span = Span(DIRECTORY, f"x#{chat}", between=(_UNIT_PREFIX, to))
        request: dict[str, Any] = {
            **span.query(self._settings),
            "ConsistentRead": True,
            "ScanIndexForward": False,
            "Limit": _PAGE,
        }
        async for rows in iter_pages(self._client, "query", request):
            yield [_decode_unit(row) for row in rows]

    async def list_units(self, chat: str, first: int, last: int) -> list[Unit]:
        """Return the units (exported ranges) that overlap seqs `first` to `last`, ascending."""
        units: list[Unit] = []
        async for page in self.iter_units_down(chat, last):
            units += [unit for unit in page if unit.last >= first]
            if page and page[-1].last < first:
                break
        return units[::-1]

    async def find_last(self, chat: str) -> int:
        """Return the last seq in the exported ranges of the chat; 0 if there are none."""
        async for page in self.iter_units_down(chat):
            return page[0].last if page else 0
        return 0

    # Users

    async def find_erased(self, users: Collection[str]) -> set[str]:
        """Return the users among `users` who have been erased."""
        keys = [row_key(user_key(user), user_key(user)) for user in sorted(set(users))]
        rows = await get_items(self._client, self._table, keys)
        return {
            row[DirectoryField.PK]["S"].removeprefix(user_key(""))
            for row in rows
            if DirectoryField.ERASED in row
        }


def _unit_key(chat: str, first: int) -> Item:
    # The sort key ends with the chat: it is the partition key of the index `by_member`. Without the
    # chat, the units of all chats would share a few index partitions.
    return row_key(f"x#{chat}", f"{_UNIT_PREFIX}{first:020d}#{chat}")


def encode_unit(unit: Unit) -> Item:
    """Return the item of a unit whose files have not been written yet."""
    return _unit_key(unit.chat, unit.first) | {
        Field.FIRST: {"N": str(unit.first)},
        Field.LAST: {"N": str(unit.last)},
        Field.BATCH: {"S": unit.batch},
    }


def _decode_unit(item: Item) -> Unit:
    try:
        return Unit(
            chat=ChatId(item[Field.PK]["S"].removeprefix("x#")),
            first=int(item[Field.FIRST]["N"]),
            last=int(item[Field.LAST]["N"]),
            batch=item[Field.BATCH]["S"],
            sha256=item.get(Field.SHA256, {"S": ""})["S"],
            version=item.get(Field.VERSION, {"S": ""})["S"],
        )
    except (KeyError, ValueError) as exc:
        raise _make_error(item, "an analytics unit", exc) from exc


def _decode_segment(item: Item) -> NewSegment:
    try:
        return NewSegment(
            chat=ChatId(item[Field.PK]["S"].removeprefix(_ARCHIVE_PREFIX)),
            first=int(item[Field.FIRST]["N"]),
            last=int(item[Field.LAST]["N"]),
            tag=item[Field.TAG]["S"],
        )
    except (KeyError, ValueError) as exc:
        raise _make_error(item, "an archive segment", exc) from exc


def _make_error(item: Item, detail: str, exc: Exception) -> CorruptData:
    key = {name: item.get(name) for name in DIRECTORY.key.names}
    return CorruptData(f"table directory: the item at {key} is not {detail}: {exc!r}")
