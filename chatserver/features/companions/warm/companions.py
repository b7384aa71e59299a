"""Companion items in the `directory` table.

| item      | `PK`             | `SK`                   | attributes                          |
|-----------|------------------|------------------------|-------------------------------------|
| head      | `companions`     | `companion#<id>`       | `name version created ended?`       |
| `version` | `companion#<id>` | `version#<id>#<00001>` | `name version created prompt        |
|           |                  |                        | provider model context_tokens       |
|           |                  |                        | answer_tokens options?` (JSON)      |

A head holds the newest version number, and whether the companion has been deleted. All heads are in
one partition, because there are few of them, and listing companions reads all of them. A version
item is written once.

Invariant: all versions from 1 to the head's version exist, and never change.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.domain.companion_ids import VERSIONS_MAX, CompanionId
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Conflict, CorruptData, NotFound, Unavailable
from chatserver.features.companions.companion_options import (
    NO_OPTIONS,
    encode_options,
    parse_options,
)
from chatserver.features.companions.model import NO_COMPANION, Companion, VersionChanges
from chatserver.features.companions.tables import CompanionField as Field
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr, Condition, Default, encode_item
from chatserver.warm.dynamo.item_attributes import get_number, get_text
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races
from chatserver.warm.dynamo.paging import QueryPage, Span, read_page
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

PARTITION: Final = "companions"
HEAD_PREFIX: Final = "companion#"
TRIES_MAX: Final = 8


# `SK` repeats the id. Otherwise, version 1 of every companion would have the same partition key in
# the `by_member` index.
VERSION: Final = Codec(
    Companion,
    HEAD_PREFIX + "{id}",
    "version#{id}#{version:05d}",
    omitted=("is_deleted",),  # in the item of the newest version
    name=Field.NAME,
    version=Field.VERSION,
    created_ms=Field.CREATED,
    prompt=Field.PROMPT,
    provider=Field.PROVIDER,
    model=Field.MODEL,
    context_tokens_max=Field.CONTEXT_TOKENS,
    answer_tokens_max=Field.ANSWER_TOKENS,
    options=StoredField(Field.OPTIONS, NO_OPTIONS, parse_options, encode_options),
)
_IS_NEW: Final = Attr(DirectoryField.PK).is_absent


class CompanionRows:
    """Reads and writes companion items."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def create(self, companion: Companion) -> None:
        """Write version 1 of a new companion.

        Guarantees:
            Idempotent: a retry with the same fields, including the creation time, succeeds.

        Raises:
            Conflict: the id belongs to another companion, which may have been deleted.
        """
        try:
            await self._write(companion, _IS_NEW)
        except ConditionFailed:
            if await self._find_version(companion.id, 1) != companion:
                raise Conflict(
                    f"companion {companion.id}: already exists or has been deleted"
                ) from None

    async def update(
        self,
        companion: CompanionId,
        changes: VersionChanges,
        now_ms: int,
        before: int | None = None,
    ) -> Companion:
        """Write the next version of a companion and return it.

        With `before`, write it only if `before` is the newest version.

        Guarantees:
            Each of several concurrent updates creates its own version, based on the previous one.

        Raises:
            NotFound: there is no such companion.
            Conflict: the newest version is not `before`.
            BadRequest: the companion already has the maximum number of versions.
            Unavailable: there were too many concurrent updates.
        """

        async def attempt() -> Companion:
            newest = await self.get_newest(companion)
            if before is not None and newest.version != before:
                raise Conflict(f"version: is outdated; the newest is {newest.version}")
            if newest.version >= VERSIONS_MAX:
                raise BadRequest(f"companion: has the maximum of {VERSIONS_MAX} versions")
            successor = changes.apply(newest, now_ms)
            is_newest = Attr(Field.VERSION) == newest.version
            try:
                await self._write(successor, is_newest & Attr(DirectoryField.ENDED).is_absent)
            except ConditionFailed:
                # If the stored version equals `successor`, an earlier attempt wrote it, and its
                # reply was lost. An equal version from another request is just as good.
                if await self._find_version(companion, successor.version) != successor:
                    raise
            return successor

        error = Unavailable(f"companion {companion}: too many concurrent changes; try again")
        return await retry_lost_races(attempt, error, attempts_max=TRIES_MAX)

    async def delete(self, companion: CompanionId, now_ms: int) -> None:
        """Mark a companion as deleted; its versions remain. Idempotent. Raises NotFound."""
        key, changes = _head_key(companion), {DirectoryField.ENDED: Default(now_ms)}
        try:
            await self._table.update(key, changes, if_=Attr(DirectoryField.PK).exists)
        except ConditionFailed:
            raise NotFound(NO_COMPANION) from None

    async def get_newest(self, companion: CompanionId) -> Companion:
        """Return the newest version of a companion. Strongly consistent.

        Raises:
            NotFound: there is no such companion, or it has been deleted.
        """
        head = await self._table.find(_head_key(companion))
        if head is None or DirectoryField.ENDED in head:
            raise NotFound(NO_COMPANION)
        version = await self._find_version(companion, get_number(head, Field.VERSION))
        if version is None:
            raise CorruptData(f"companion {companion}: the newest version is missing")
        return version

    async def get_companion(self, companion: CompanionId, version: int) -> Companion:
        """Return the given version of a companion, even if the companion has been deleted.

        Strongly consistent. Raises NotFound.
        """
        keys = [_head_key(companion), VERSION.key(id=companion, version=version)]
        items = await self._table.get_items(keys)
        by_partition = {item[DirectoryField.PK]["S"]: item for item in items}
        head, row = by_partition.get(PARTITION), by_partition.get(HEAD_PREFIX + companion)
        if head is None or row is None:
            raise NotFound(NO_COMPANION if head is None else f"version: {version} does not exist")
        return dataclasses.replace(VERSION.decode(row), is_deleted=DirectoryField.ENDED in head)

    async def list_page(
        self, *, limit: int, after: CompanionId | None = None
    ) -> tuple[list[Companion], CompanionId | None]:
        """Return a page of companions that have not been deleted, and the next page's `after`.

        The page has the newest version of each companion, sorted by id.

        Guarantees:
            Cost: a Query, and a BatchGetItem per 100 companions.
        """
        span = Span(DIRECTORY, PARTITION, prefix=HEAD_PREFIX)
        start = None
        if after is not None:
            start = dict(zip(DIRECTORY.key.names, _head_key(after), strict=True))

        async def load(rows: list[Item]) -> list[Companion | None]:
            active = [row for row in rows if DirectoryField.ENDED not in row]
            keys = [
                VERSION.key(id=_get_id(row), version=get_number(row, Field.VERSION))
                for row in active
            ]
            versions = [VERSION.decode(item) for item in await self._table.get_items(keys)]
            by_id = {version.id: version for version in versions}
            return [
                None if DirectoryField.ENDED in row else by_id.get(_get_id(row)) for row in rows
            ]

        page: QueryPage[Companion] = await read_page(
            self._table.client, span, self._table.build_query(span), load, limit=limit, start=start
        )
        next_after = None
        if page.next is not None:
            name = str(page.next[DirectoryField.SK]).removeprefix(HEAD_PREFIX)
            next_after = CompanionId(UserId(name))
        return page.items, next_after

    async def _write(self, companion: Companion, if_: Condition) -> None:
        actions = [
            self._table.put_action(encode_head(companion), if_=if_),
            self._table.put_action(VERSION.encode(companion), if_=_IS_NEW),
        ]
        await self._table.client.transact(actions)

    async def _find_version(self, companion: CompanionId, version: int) -> Companion | None:
        item = await self._table.find(VERSION.key(id=companion, version=version))
        return None if item is None else VERSION.decode(item)


def _get_id(head: Item) -> CompanionId:
    return CompanionId(UserId(get_text(head, DirectoryField.SK).removeprefix(HEAD_PREFIX)))


def encode_head(newest: Companion) -> Item:
    """Return the head item of a companion, given its newest version."""
    return row_key(*_head_key(newest.id)) | encode_item(
        {
            Field.NAME: newest.name,
            Field.VERSION: newest.version,
            Field.CREATED: newest.created_ms,
        }
    )


def _head_key(companion: CompanionId) -> tuple[str, str]:
    return PARTITION, HEAD_PREFIX + companion
