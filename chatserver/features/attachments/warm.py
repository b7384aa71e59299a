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
from typing import Final, NamedTuple

from chatserver.domain.ids import UserId
from chatserver.errors import Conflict, RateLimited, TooLarge, Unavailable
from chatserver.features.attachments.model import File, UploadBounds, Usage, check_size
from chatserver.features.attachments.tables import FileField as Field
from chatserver.telemetry import metrics
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

SHARDS: Final = 16  # number of partition keys of due items
TRIES_MAX = 8
_DUE_DIGITS = 12
FILE: Final = Codec(
    File,
    "file#{id}",
    "file#{id}",
    owner=Field.OWNER,
    chat=Field.CHAT,
    name=Field.NAME,
    type=Field.TYPE,
    sha256=Field.SHA256,
    phase=Field.STATE,
    size=Field.SIZE,
    created=StoredField(
        Field.CREATED, load=lambda ms: ms // 1000, dump=lambda time_s: time_s * 1000
    ),
    rev=Field.REV,
    due=Field.DUE,
    width=Field.WIDTH,
    height=Field.HEIGHT,
    has_thumb=StoredField(Field.THUMB, absent=False),
    is_processed=StoredField(Field.LOOKED_AT, absent=False),
    seqs=StoredField(Field.SEQS, absent=frozenset(), load=lambda seqs: frozenset(map(int, seqs))),
)


class DueFile(NamedTuple):
    """A scheduled deletion: `file` is deleted at time `at`, unless the file's `due` has changed."""

    file: str
    at: int


class Attachments:
    """Reads and writes file items."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def create_file(self, file: File, bounds: UploadBounds) -> File:
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
            self._table.put_action(
                FILE.encode(file), if_=Attr(DirectoryField.PK).is_absent, keeps_stored=True
            ),
            *self._build_due_actions(file.id, None, file.due),
            self._build_count_update(file, 1, file.size, bounds),
            self._table.put_action(owned_key(file)),
        ]
        try:
            await self._table.client.transact(actions)
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
            existing = FILE.decode(exc.stored[0])
            if not existing.is_same_request(file):
                raise Conflict(
                    "attachment: this Idempotency-Key has already been used with other values"
                ) from None
            return existing
        return file

    async def get_usage(self, owner: UserId) -> Usage:
        """Return a user's usage, as counted for the limits. Strongly consistent."""
        item = await self._table.find(_usage_key(owner))
        if item is None:
            return Usage()
        return Usage(int(item[Field.UPLOADS]["N"]), int(item[Field.BYTES]["N"]))

    async def find_file(self, file: str) -> File | None:
        """Return a file, or None if it does not exist. Strongly consistent."""
        item = await self._table.find(FILE.key(id=file))
        return None if item is None else FILE.decode(item)

    async def update_file(self, file: str, change: Callable[[File], File]) -> File | None:
        """Apply `change` to a file and return the result; None if the file does not exist.

        Guarantees:
            Atomic: `change` receives the current file, and may be called several times.
            Cancellation: safe; the update is never partial.

        Raises:
            Unavailable: the change may or may not have been made.
        """

        async def attempt() -> File | None:
            stored = await self.find_file(file)
            if stored is None:
                return None
            changed = change(stored)
            if changed == stored:
                return stored
            changed = dataclasses.replace(changed, rev=stored.rev + 1)
            actions = [
                self._table.put_action(FILE.encode(changed), if_=Attr(Field.REV) == stored.rev),
                *self._build_due_actions(file, stored.due, changed.due),
            ]
            if stored.is_unreferenced != changed.is_unreferenced:
                number = 1 if changed.is_unreferenced else -1
                actions.append(self._build_count_update(changed, number, 0))
            await self._table.client.transact(actions)
            return changed

        error = Unavailable(f"file {file}: too many concurrent changes; try again")
        return await retry_lost_races(attempt, error, attempts_max=TRIES_MAX)

    # Deletion

    async def list_due(self, shard: int, before: int, limit: int) -> list[DueFile]:
        """Return up to `limit` due items with `PK` ``due#<shard>`` and a time before `before`."""
        span = Span(DIRECTORY, f"due#{shard}", before=_format_due(before))
        rows = await self._table.query(span, limit=limit)
        due = []
        for row in rows:
            due_s, _, file = row[DirectoryField.SK]["S"].partition("#")
            due.append(DueFile(file, int(due_s)))
        return due

    async def remove_file(self, file: File) -> bool:
        """Delete a file's items; return False if the file has changed. Idempotent."""
        actions = [
            self._table.delete_action(FILE.key(id=file.id), if_=Attr(Field.REV) == file.rev),
            self._table.delete_action(owned_key(file)),
            *self._build_due_actions(file.id, file.due, None),
            self._build_count_update(file, -1 if file.is_unreferenced else 0, -file.size),
        ]
        return await try_write(self._table.client.transact(actions))

    async def delete_due(self, due: DueFile) -> None:
        """Delete an outdated due item: its file is gone, or has another `due`. Idempotent."""
        await self._table.delete(due_key(due.file, due.at))

    # Transaction parts

    def _build_due_actions(self, file: str, old: int | None, new: int | None) -> list[Action]:
        if old == new:
            return []
        actions: list[Action] = []
        if old is not None:
            actions.append(self._table.delete_action(due_key(file, old)))
        if new is not None:
            actions.append(self._table.put_action(due_key(file, new)))
        return actions

    def _build_count_update(
        self, file: File, number: int, size: int, bounds: UploadBounds | None = None
    ) -> Action:
        condition = None
        if bounds is not None:
            uploads, room = Attr(Field.UPLOADS), bounds.user_bytes_max - file.size
            has_room = (uploads < bounds.waiting_max) & (Attr(Field.BYTES) <= room)
            condition = uploads.is_absent | has_room
        changes = {Field.UPLOADS: Add(number), Field.BYTES: Add(size)}
        return self._table.update_action(_usage_key(file.owner), changes, if_=condition)


def get_shard(file: str) -> int:
    """Return `<shard>` of the partition key ``due#<shard>``, which a file's due item has."""
    return zlib.crc32(file.encode()) % SHARDS


def _usage_key(owner: UserId) -> Key:
    return user_key(owner), f"uploads#{owner}"


def owned_key(file: File) -> tuple[str, str]:
    return user_key(file.owner), f"file#{file.id}"


def _format_due(time_s: int) -> str:
    return f"{time_s:0{_DUE_DIGITS}d}"


def due_key(file: str, time_s: int) -> tuple[str, str]:
    return f"due#{get_shard(file)}", f"{_format_due(time_s)}#{file}"
