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

from typing import Any, Final, cast, get_args

from chatserver.config import Warm
from chatserver.domain.companion_ids import VERSIONS_MAX, CompanionId
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Conflict, CorruptData, NotFound, Unavailable
from chatserver.features.companions.companion_options import (
    NO_OPTIONS,
    Options,
    encode_options,
    parse_options,
)
from chatserver.features.companions.model import NO_COMPANION, Changes, Companion, Provider
from chatserver.features.companions.tables import CompanionField as Field
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import get_number, get_text
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.dynamo.paging import Page, Span, read_page
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

PARTITION: Final = "companions"
HEAD_PREFIX: Final = "companion#"
TRIES_MAX: Final = 8


def encode_version(companion: Companion) -> Item:
    item = _version_key(companion.id, companion.version)
    item[Field.NAME] = {"S": companion.name}
    item[Field.VERSION] = {"N": str(companion.version)}
    item[Field.CREATED] = {"N": str(companion.created_ms)}
    item[Field.PROMPT] = {"S": companion.prompt}
    item[Field.PROVIDER] = {"S": companion.provider}
    item[Field.MODEL] = {"S": companion.model}
    item[Field.CONTEXT_TOKENS] = {"N": str(companion.context_tokens_max)}
    item[Field.ANSWER_TOKENS] = {"N": str(companion.answer_tokens_max)}
    if companion.options != NO_OPTIONS:
        item[Field.OPTIONS] = {"S": encode_options(companion.options)}
    return item


def encode_head(companion: Companion) -> Item:
    """Return the companion's `head` item; `companion` is the newest version."""
    item = _head_key(companion.id)
    item[Field.NAME] = {"S": companion.name}
    item[Field.VERSION] = {"N": str(companion.version)}
    item[Field.CREATED] = {"N": str(companion.created_ms)}
    return item


def decode_version(item: Item, *, is_deleted: bool) -> Companion:
    """Decode a version item. Raises CorruptData."""
    provider = get_text(item, Field.PROVIDER)
    if provider not in get_args(Provider):
        raise CorruptData(
            f"table directory: {item.get(DirectoryField.PK)}: unknown provider {provider!r}"
        )
    return Companion(
        id=CompanionId(UserId(get_text(item, DirectoryField.PK).removeprefix(HEAD_PREFIX))),
        version=get_number(item, Field.VERSION),
        name=get_text(item, Field.NAME),
        prompt=get_text(item, Field.PROMPT),
        provider=cast(Provider, provider),
        model=get_text(item, Field.MODEL),
        context_tokens_max=get_number(item, Field.CONTEXT_TOKENS),
        answer_tokens_max=get_number(item, Field.ANSWER_TOKENS),
        created_ms=get_number(item, Field.CREATED),
        is_deleted=is_deleted,
        options=_decode_options(item),
    )


def _decode_options(item: Item) -> Options:
    if Field.OPTIONS not in item:
        return NO_OPTIONS
    try:
        return parse_options(get_text(item, Field.OPTIONS))
    except BadRequest as exc:
        raise CorruptData(f"table directory: {item.get(DirectoryField.PK)}: {exc.message}") from exc


class CompanionRows:
    """Reads and writes companion items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def create(self, companion: Companion) -> None:
        """Write version 1 of a new companion.

        Guarantees:
            Idempotent: a retry with the same fields, including the creation time, succeeds.

        Raises:
            Conflict: the id belongs to another companion, which may have been deleted.
        """
        try:
            await self._write(companion, "attribute_not_exists(#pk)", {})
        except ConditionFailed:
            if await self._find_version(companion.id, 1) != companion:
                raise Conflict(
                    f"companion {companion.id}: already exists or has been deleted"
                ) from None

    async def update(
        self, companion: CompanionId, changes: Changes, now_ms: int, before: int | None = None
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
        for _ in range(TRIES_MAX):
            newest = await self.get_newest(companion)
            if before is not None and newest.version != before:
                raise Conflict(f"version: is outdated; the newest is {newest.version}")
            if newest.version >= VERSIONS_MAX:
                raise BadRequest(f"companion: has the maximum of {VERSIONS_MAX} versions")
            following = changes.apply(newest, now_ms)
            values = {":before": {"N": str(newest.version)}}
            condition = "#version = :before AND attribute_not_exists(#ended)"
            try:
                await self._write(following, condition, values)
            except ConditionFailed:
                # If the stored version equals `following`, an earlier attempt wrote it, and its
                # reply was lost. An equal version from another request is just as good.
                if await self._find_version(companion, following.version) == following:
                    return following
            else:
                return following
        raise Unavailable(f"companion {companion}: too many concurrent changes; try again")

    async def delete(self, companion: CompanionId, now_ms: int) -> None:
        """Mark a companion as deleted; its versions remain. Idempotent. Raises NotFound."""
        request = {
            "TableName": self._table,
            "Key": _head_key(companion),
            "UpdateExpression": "SET #ended = if_not_exists(#ended, :now)",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#ended": DirectoryField.ENDED,
                "#pk": DirectoryField.PK,
            },
            "ExpressionAttributeValues": {":now": {"N": str(now_ms)}},
        }
        try:
            await self._client.call("update_item", request)
        except ConditionFailed:
            raise NotFound(NO_COMPANION) from None

    async def get_newest(self, companion: CompanionId) -> Companion:
        """Return the newest version of a companion. Strongly consistent.

        Raises:
            NotFound: there is no such companion, or it has been deleted.
        """
        head = await find_item(self._client, self._table, _head_key(companion))
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
        keys = [_head_key(companion), _version_key(companion, version)]
        items = await get_items(self._client, self._table, keys)
        by_partition = {item[DirectoryField.PK]["S"]: item for item in items}
        head, row = by_partition.get(PARTITION), by_partition.get(HEAD_PREFIX + companion)
        if head is None or row is None:
            raise NotFound(NO_COMPANION if head is None else f"version: {version} does not exist")
        return decode_version(row, is_deleted=DirectoryField.ENDED in head)

    async def list_page(
        self, *, limit: int, after: CompanionId | None = None
    ) -> tuple[list[Companion], CompanionId | None]:
        """Return a page of companions that have not been deleted, and the next page's `after`.

        The page has the newest version of each companion, sorted by id.

        Guarantees:
            Cost: a Query, and a BatchGetItem per 100 companions.
        """
        span = Span(DIRECTORY, PARTITION, prefix=HEAD_PREFIX)
        query = {**span.query(self._settings), "ConsistentRead": True}
        start = None
        if after is not None:
            start = {name: value["S"] for name, value in _head_key(after).items()}

        async def load(rows: list[Item]) -> list[Companion | None]:
            active = [row for row in rows if DirectoryField.ENDED not in row]
            keys = [_version_key(_get_id(row), get_number(row, Field.VERSION)) for row in active]
            items = await get_items(self._client, self._table, keys) if keys else []
            versions = [decode_version(item, is_deleted=False) for item in items]
            by_id = {version.id: version for version in versions}
            return [
                None if DirectoryField.ENDED in row else by_id.get(_get_id(row)) for row in rows
            ]

        page: Page[Companion] = await read_page(
            self._client, span, query, load, limit=limit, start=start
        )
        following = None
        if page.next is not None:
            name = str(page.next[DirectoryField.SK]).removeprefix(HEAD_PREFIX)
            following = CompanionId(UserId(name))
        return page.items, following

    async def _write(self, companion: Companion, condition: str, values: dict[str, Any]) -> None:
        names = {"#pk": DirectoryField.PK}
        if values:
            names = {"#version": Field.VERSION, "#ended": DirectoryField.ENDED}
        head = {
            "TableName": self._table,
            "Item": encode_head(companion),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
        }
        if values:
            head["ExpressionAttributeValues"] = values
        row = {
            "TableName": self._table,
            "Item": encode_version(companion),
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": DirectoryField.PK},
        }
        actions = [{"Put": head}, {"Put": row}]
        await self._client.call("transact_write_items", {"TransactItems": actions})

    async def _find_version(self, companion: CompanionId, version: int) -> Companion | None:
        item = await find_item(self._client, self._table, _version_key(companion, version))
        return None if item is None else decode_version(item, is_deleted=False)


def _head_key(companion: CompanionId) -> Item:
    return row_key(PARTITION, HEAD_PREFIX + companion)


def _version_key(companion: CompanionId, version: int) -> Item:
    # SK repeats the id. Otherwise, version 1 of every companion would have the same partition key
    # in the `by_member` index.
    return row_key(HEAD_PREFIX + companion, f"version#{companion}#{version:05d}")


def _get_id(head: Item) -> CompanionId:
    return CompanionId(UserId(get_text(head, DirectoryField.SK).removeprefix(HEAD_PREFIX)))
