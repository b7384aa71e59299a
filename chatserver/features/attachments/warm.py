"""DynamoDB items for files: owners, references from messages, and deletion times.

Owns these items in the `directory` table:

| item    | `PK`          | `SK`              | attributes                                         |
|---------|---------------|-------------------|----------------------------------------------------|
| file    | `file#<id>`   | `file#<id>`       | `owner chat file_name type size sha256 created`    |
|         |               |                   | `state rev due? seqs? width? height? thumb?`       |
|         |               |                   | `looked_at?`                                       |
| due     | `due#<shard>` | `<due>#<id>`      | none: the file is deleted at `due`                 |
| owned   | `u#<user>`    | `file#<id>`       | none: the user owns the file                       |
| uploads | `u#<user>`    | `uploads#<user>`  | `uploads bytes`: count of the user's unreferenced  |
|         |               |                   | files, and size of all their files                 |

A file, its due item and its owner's `uploads` item are changed in one transaction, which fails if
the file has changed since it was read. So a file with a deletion time always has a due item, even
after a crash, and the `uploads` item is always exact.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from chatserver.config import Warm
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import Conflict, CorruptData, RateLimited, TooLarge, Unavailable
from chatserver.features.attachments.model import Bounds, File, Phase, Usage, check_size
from chatserver.features.attachments.tables import FileField as Field
from chatserver.telemetry import metrics
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

SHARDS: Final = 16  # number of partition keys of due items
TRIES_MAX = 8
_DUE_DIGITS = 12


class DueFile(NamedTuple):
    """A scheduled deletion: `file` is deleted at time `at`, unless the file's `due` has changed."""

    file: str
    at: int


class Attachments:
    """Reads and writes file items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def create_file(self, file: File, bounds: Bounds) -> File:
        """Store a file that is announced for upload, and return it.

        Guarantees:
            Idempotent: a repeated request returns the stored file.
            The owner's files never exceed `bounds`.

        Raises:
            TooLarge: the file exceeds the maximum size, or the owner's files their maximum.
            RateLimited: the owner has too many unreferenced files.
            Conflict: the id has been used for a file with other values.
        """
        check_size(file.size, bounds)
        actions = [
            {
                "Put": {
                    "TableName": self._table,
                    "Item": encode_file(file),
                    "ConditionExpression": "attribute_not_exists(#pk)",
                    "ExpressionAttributeNames": {"#pk": DirectoryField.PK},
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
            *self._build_due_actions(file.id, None, file.due),
            self._build_count_update(file, 1, file.size, bounds),
            {"Put": {"TableName": self._table, "Item": owned_key(file)}},
        ]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            if exc.stored[0] is None:
                metrics.RATE_LIMITED.labels("attachments").inc()
                usage = await self.get_usage(file.owner)
                if usage.user_bytes > bounds.user_bytes_max - file.size:
                    raise TooLarge(
                        f"size: your files have {usage.user_bytes} bytes and at most "
                        f"{bounds.user_bytes_max} are allowed; delete messages with files"
                    ) from None
                raise RateLimited(
                    f"attachments: at most {bounds.waiting_max} unsent files are allowed; send "
                    "some, or wait until they are deleted",
                    retry_after_ms=60_000,
                ) from None
            existing = decode_file(exc.stored[0])
            if not existing.is_same_request(file):
                raise Conflict(
                    "attachment: this Idempotency-Key has already been used with other values"
                ) from None
            return existing
        return file

    async def get_usage(self, owner: UserId) -> Usage:
        """Return a user's usage, as counted for the limits. Strongly consistent."""
        item = await find_item(self._client, self._table, _usage_key(owner))
        if item is None:
            return Usage()
        return Usage(int(item[Field.UPLOADS]["N"]), int(item[Field.BYTES]["N"]))

    async def find_file(self, file: str) -> File | None:
        """Return a file, or None if it does not exist. Strongly consistent."""
        item = await find_item(self._client, self._table, file_key(file))
        return None if item is None else decode_file(item)

    async def update_file(self, file: str, change: Callable[[File], File]) -> File | None:
        """Apply `change` to a file and return the result; None if the file does not exist.

        Guarantees:
            Atomic: `change` receives the current file, and may be called several times.
            Cancellation: safe; the update is never partial.

        Raises:
            Unavailable: the change may or may not have been made.
        """
        for _ in range(TRIES_MAX):
            stored = await self.find_file(file)
            if stored is None:
                return None
            wanted = change(stored)
            if wanted == stored:
                return stored
            wanted = dataclasses.replace(wanted, rev=stored.rev + 1)
            put = {
                "TableName": self._table,
                "Item": encode_file(wanted),
                **_require_rev(stored.rev),
            }
            actions: list[dict[str, Any]] = [{"Put": put}]
            actions += self._build_due_actions(file, stored.due, wanted.due)
            if stored.is_unreferenced != wanted.is_unreferenced:
                actions.append(
                    self._build_count_update(wanted, 1 if wanted.is_unreferenced else -1, 0)
                )
            try:
                await self._client.call("transact_write_items", {"TransactItems": actions})
            except ConditionFailed:
                continue
            return wanted
        raise Unavailable(f"file {file}: too many concurrent changes; try again")

    # Deletion

    async def list_due(self, shard: int, before: int, limit: int) -> list[DueFile]:
        """Return up to `limit` due items with `PK` ``due#<shard>`` and a time before `before`."""
        request = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND #sk < :before",
            "ExpressionAttributeNames": {"#pk": DirectoryField.PK, "#sk": DirectoryField.SK},
            "ExpressionAttributeValues": {
                ":pk": {"S": f"due#{shard}"},
                ":before": {"S": _format_due(before)},
            },
            "ConsistentRead": True,
            "Limit": limit,
        }
        rows = (await self._client.call("query", request))["Items"]
        due = []
        for row in rows:
            due_s, _, file = row[DirectoryField.SK]["S"].partition("#")
            due.append(DueFile(file, int(due_s)))
        return due

    async def remove_file(self, file: File) -> bool:
        """Delete a file's items; return False if the file has changed. Idempotent."""
        delete = {"TableName": self._table, "Key": file_key(file.id), **_require_rev(file.rev)}
        actions: list[dict[str, Any]] = [{"Delete": delete}]
        actions.append({"Delete": {"TableName": self._table, "Key": owned_key(file)}})
        actions += self._build_due_actions(file.id, file.due, None)
        actions.append(
            self._build_count_update(file, -1 if file.is_unreferenced else 0, -file.size)
        )
        return await write_conditionally(
            self._client, "transact_write_items", {"TransactItems": actions}
        )

    async def delete_due(self, due: DueFile) -> None:
        """Delete an outdated due item: its file is gone, or has another `due`. Idempotent."""
        key = due_key(due.file, due.at)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    # Transaction parts

    def _build_due_actions(
        self, file: str, old: int | None, new: int | None
    ) -> list[dict[str, Any]]:
        if old == new:
            return []
        actions: list[dict[str, Any]] = []
        if old is not None:
            actions.append({"Delete": {"TableName": self._table, "Key": due_key(file, old)}})
        if new is not None:
            actions.append({"Put": {"TableName": self._table, "Item": due_key(file, new)}})
        return actions

    def _build_count_update(
        self, file: File, number: int, size: int, bounds: Bounds | None = None
    ) -> dict[str, Any]:
        names = {"#uploads": Field.UPLOADS, "#bytes": Field.BYTES}
        values = {":one": {"N": str(number)}, ":size": {"N": str(size)}}
        update: dict[str, Any] = {
            "TableName": self._table,
            "Key": _usage_key(file.owner),
            "UpdateExpression": "ADD #uploads :one, #bytes :size",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        if bounds is not None:
            update["ConditionExpression"] = (
                "attribute_not_exists(#uploads) OR (#uploads < :max AND #bytes <= :room)"
            )
            values[":max"] = {"N": str(bounds.waiting_max)}
            values[":room"] = {"N": str(bounds.user_bytes_max - file.size)}
        return {"Update": update}


def get_shard(file: str) -> int:
    """Return `<shard>` of the partition key ``due#<shard>``, which a file's due item has."""
    return zlib.crc32(file.encode()) % SHARDS


def _usage_key(owner: UserId) -> Item:
    return row_key(user_key(owner), f"uploads#{owner}")


def file_key(file: str) -> Item:
    return row_key(f"file#{file}", f"file#{file}")


def owned_key(file: File) -> Item:
    return row_key(user_key(file.owner), f"file#{file.id}")


def _format_due(time_s: int) -> str:
    return f"{time_s:0{_DUE_DIGITS}d}"


def due_key(file: str, time_s: int) -> Item:
    return row_key(f"due#{get_shard(file)}", f"{_format_due(time_s)}#{file}")


def _require_rev(rev: int) -> dict[str, Any]:
    return {
        "ConditionExpression": "#rev = :rev",
        "ExpressionAttributeNames": {"#rev": Field.REV},
        "ExpressionAttributeValues": {":rev": {"N": str(rev)}},
    }


def encode_file(file: File) -> Item:
    texts = {
        Field.OWNER: file.owner,
        Field.CHAT: file.chat,
        Field.NAME: file.name,
        Field.TYPE: file.type,
        Field.SHA256: file.sha256,
        Field.STATE: file.phase,
    }
    numbers = {
        Field.SIZE: file.size,
        Field.CREATED: file.created * 1000,
        Field.REV: file.rev,
        Field.DUE: file.due,
        Field.WIDTH: file.width,
        Field.HEIGHT: file.height,
    }
    flags = {Field.THUMB: file.has_thumb, Field.LOOKED_AT: file.is_processed}
    item = file_key(file.id)
    item |= {name: {"S": text} for name, text in texts.items()}
    item |= {name: {"N": str(number)} for name, number in numbers.items() if number is not None}
    item |= {name: {"BOOL": True} for name, flag in flags.items() if flag}
    if file.seqs:
        item[Field.SEQS] = {"NS": [str(seq) for seq in sorted(file.seqs)]}
    return item


def decode_file(item: Item) -> File:
    """Decode a file item. Raises CorruptData."""

    def find_number(name: str) -> int | None:
        return int(item[name]["N"]) if name in item else None

    try:
        return File(
            id=item[DirectoryField.PK]["S"].removeprefix("file#"),
            owner=UserId(item[Field.OWNER]["S"]),
            chat=ChatId(item[Field.CHAT]["S"]),
            name=item[Field.NAME]["S"],
            type=item[Field.TYPE]["S"],
            size=int(item[Field.SIZE]["N"]),
            sha256=item[Field.SHA256]["S"],
            created=int(item[Field.CREATED]["N"]) // 1000,
            due=find_number(Field.DUE),
            phase=cast(Phase, item[Field.STATE]["S"]),
            seqs=frozenset(map(int, item.get(Field.SEQS, {"NS": ()})["NS"])),
            width=find_number(Field.WIDTH),
            height=find_number(Field.HEIGHT),
            has_thumb=Field.THUMB in item,
            is_processed=Field.LOOKED_AT in item,
            rev=int(item[Field.REV]["N"]),
        )
    except (KeyError, ValueError) as exc:
        raise CorruptData(
            f"table directory: {item.get(DirectoryField.PK)} is not a valid file item: {exc!r}"
        ) from exc
