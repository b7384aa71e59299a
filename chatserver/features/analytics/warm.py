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
from typing import Final, NamedTuple

from chatserver.domain.ids import ChatId
from chatserver.errors import LostRace
from chatserver.features.analytics.model import Unit
from chatserver.features.analytics.tables import ExportField as Field
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
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


# The sort keys end with the chat: they are the partition keys of the index `by_member`. Without the
# chat, the units of all chats would share a few index partitions.
UNIT: Final = Codec(
    Unit,
    "x#{chat}",
    "p#{first:020d}#{chat}",
    first=Field.FIRST,
    last=Field.LAST,
    batch=Field.BATCH,
    sha256=StoredField(Field.SHA256, absent=""),
    version=StoredField(Field.VERSION, absent=""),
)
_SEGMENT: Final = Codec(
    NewSegment,
    "a#{chat}",
    "s#{last:020d}#{chat}",
    first=Field.FIRST,
    last=Field.LAST,
    tag=Field.TAG,
)


class ExportRows:
    """Reads and writes the export state."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    # Segments

    async def list_segments(
        self, start: Item | None, *, is_all: bool
    ) -> tuple[list[NewSegment], Item | None]:
        """Return one page of archive segments, and the start key of the next page.

        Without `is_all`, segments that have already been exported are left out. The segments of
        each chat are in ascending order. A scan costs 128 read units per 8,000 items.
        """
        is_segment = Attr(Field.PK).begins_with(_ARCHIVE_PREFIX)
        is_segment &= Attr(Field.SK).begins_with(_SEGMENT_PREFIX)
        where = is_segment if is_all else is_segment & Attr(Field.EXPORTED).is_absent
        scan = self._table.build_scan(where=where, start=start, is_consistent=True)
        response = await self._table.client.call("scan", scan)
        return [_SEGMENT.decode(row) for row in response["Items"]], response.get("LastEvaluatedKey")

    async def mark_exported(self, segment: NewSegment) -> bool:
        """Mark a segment as exported; return False if it has been replaced since it was read."""
        key = _SEGMENT.key(chat=segment.chat, last=segment.last)
        is_same = Attr(Field.TAG) == segment.tag
        return await try_write(self._table.update(key, {Field.EXPORTED: True}, if_=is_same))

    # All reads of units are strongly consistent.

    async def claim(self, unit: Unit) -> None:
        """Create a unit, a range of entries to export. Call this before reading them. Idempotent.

        Raises:
            LostRace: another process has created a unit that starts at the same seq.
        """
        is_own = Attr(Field.PK).is_absent | (Attr(Field.BATCH) == unit.batch)
        try:
            await self._table.put(UNIT.encode(unit), if_=is_own)
        except ConditionFailed as exc:
            raise LostRace(f"analytics: another process is exporting chat {unit.chat}") from exc

    async def record(self, unit: Unit, sha256: str, version: str) -> None:
        """Record the SHA-256 of a unit's exported rows, and the version of the data read for them.

        Idempotent.
        """
        key = UNIT.key(chat=unit.chat, first=unit.first)
        changes = {Field.SHA256: sha256, Field.VERSION: version}
        await self._table.update(key, changes, if_=Attr(Field.PK).exists)

    async def iter_units_down(self, chat: str, seq: int | None = None) -> AsyncIterator[list[Unit]]:
        """Yield pages of a chat's units (exported ranges of entries), newest first.

        With `seq`, omit units that start above it.
        """
        to = f"{_UNIT_PREFIX}{seq + 1:020d}" if seq is not None else "p$"  # '$' follows '#'
        span = Span(DIRECTORY, f"x#{chat}", between=(_UNIT_PREFIX, to))
        async for rows in self._table.iter_query(span, limit=_PAGE, is_newest_first=True):
            yield [UNIT.decode(row) for row in rows]

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
        keys: list[Key] = [(user_key(user), user_key(user)) for user in sorted(set(users))]
        rows = await self._table.get_items(keys)
        return {
            row[DirectoryField.PK]["S"].removeprefix(user_key(""))
            for row in rows
            if DirectoryField.ERASED in row
        }
