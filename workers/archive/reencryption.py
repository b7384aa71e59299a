"""Re-encryption: encrypts stored bodies with the current data key, in DynamoDB and S3.

::

    tables, page by page ─► objects of long bodies ─► archive segments, chat by chat

It encrypts what was stored before encryption was turned on, and replaces values encrypted with
older key versions. Values whose key has been deleted are left unchanged.

Resumable: the position of the table scan is stored in table `directory` (``PK "encryption" SK
"reencryption"``). A restarted run reads all objects and segments again, and skips those that are
done. Other processes can keep running: an item is written only if its encrypted attributes are
unchanged; if they have changed, their writer has encrypted them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.encryption.value_cipher import get_key_version, is_encrypted
from chatserver.errors import Conflict, CorruptData, NotFound, Unavailable
from chatserver.protocol import codec
from chatserver.task_groups import map_concurrently
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.chats.chat_scan import iter_chats
from chatserver.warm.chats.legal_holds import encode_copy
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Raw
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.dynamo.table import Table
from chatserver.warm.encryption.data_keys import PARTITION
from chatserver.warm.encryption.encrypted_fields import FIELDS, reencrypt_fields
from chatserver.warm.messages.long_bodies import PREFIX
from chatserver.warm.schema.directory_attributes import EncryptionField as Field
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, MessageField
from workers.archive.container import ArchiveContainer

log = structlog.get_logger()

ROW: Final = "reencryption"
PAGE_ITEMS: Final = 200
WRITES_IN_FLIGHT_MAX: Final = 16
TRIES_MAX: Final = 8
BODY_BYTES_MAX: Final = 1 << 20


@dataclasses.dataclass(slots=True)
class ReencryptionCounts:
    """Counts of the items and objects that a run has read and written."""

    items_read: int = 0
    items: int = 0
    objects: int = 0
    segments: int = 0
    refused: int = 0  # number of corrupt items, objects and archives
    write_units: float = 0.0


class ReencryptionPosition(msgspec.Struct, frozen=True):
    """Position of the table scan. A new key version starts a new scan."""

    version: int
    table: int = 0
    start: Item | None = None
    is_done: bool = False


def decode_progress(item: Item) -> ReencryptionPosition:
    return msgspec.json.decode(item[Field.PROGRESS]["S"], type=ReencryptionPosition)


OnProgress = Callable[[ReencryptionCounts], None]


class Reencryption:
    """Re-encrypts a tenant's stored bodies."""

    def __init__(self, container: StorageContainer, writes: RateLimiter) -> None:
        cipher = container.dynamodb.cipher
        assert cipher is not None
        self._container = container
        self._cipher = cipher
        self._writes = writes
        self._warm = container.settings.warm
        # This client reads and writes items as they are stored: it does not decrypt or encrypt.
        self._raw: DynamoClient = container.dynamodb.for_feature("archive").with_cipher(None)
        self._directory = Table(self._raw, DIRECTORY)
        self._counts = ReencryptionCounts()

    async def run(self, on_progress: OnProgress) -> ReencryptionCounts:
        """Re-encrypt all bodies; return the counts.

        Guarantees:
            Idempotent and resumable. When it returns, every body that was stored before the call is
            encrypted with the current key, except corrupt ones.

        Raises:
            Unavailable: a store or a key is unavailable; run it again.
        """
        version = (await self._cipher.get_current()).version
        progress = await self._find_progress(version)
        while not progress.is_done:
            progress = await self._run_page(progress)
            failpoint("reencryption.before_checkpoint")
            await self._put_progress(progress)
            on_progress(self._counts)
        async for page in self._container.body_files.iter_pages(PREFIX):
            for item in page:
                await self._run_object(item.key, version)
            on_progress(self._counts)
        async for chats in iter_chats(self._raw):
            for chat in chats:
                await self._run_segments(chat)
            on_progress(self._counts)
        await self._put_progress(
            ReencryptionPosition(version)
        )  # the next run starts from the beginning
        return self._counts

    # items

    async def _run_page(self, progress: ReencryptionPosition) -> ReencryptionPosition:
        table = Table(self._raw, list(FIELDS)[progress.table])
        scan = table.build_scan(limit=PAGE_ITEMS, start=progress.start, is_consistent=True)
        response = await self._raw.call("scan", scan)
        await map_concurrently(
            functools.partial(self._run_item, table),
            response["Items"],
            in_flight_max=WRITES_IN_FLIGHT_MAX,
            name="reencrypt",
        )
        self._counts.items_read += len(response["Items"])
        last: Item | None = response.get("LastEvaluatedKey")
        if last is not None:
            return msgspec.structs.replace(progress, start=last)
        number = progress.table + 1
        return ReencryptionPosition(progress.version, number, None, number == len(FIELDS))

    async def _run_item(self, table: Table, item: Item) -> None:
        if table.schema is MESSAGES:
            item, old = _split_copy(item)
        else:
            old = item
        try:
            changed = await reencrypt_fields(self._cipher, table.schema, item)
        except CorruptData as exc:
            self._counts.refused += 1
            log.error("reencryption.refused", table=table.schema.name, error=exc.message)
            return
        if not changed:
            return
        if item is not old:
            changed[MessageField.COPY] = item[MessageField.COPY]
        await self._writes.acquire(1.0)
        is_unchanged = functools.reduce(
            operator.and_,
            (Attr(name).matches(Raw(old[name]) if name in old else None) for name in changed),
        )
        key = {name: item[name] for name in table.schema.key.names}
        changes = {name: Raw(value) for name, value in changed.items()}
        (request,) = table.update_action(key, changes, if_=is_unchanged).values()
        try:
            response = await self._raw.call("update_item", request)
        except ConditionFailed:
            return  # a concurrent writer has encrypted or deleted the item
        units = float(response.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0))
        self._writes.adjust(units - 1.0)
        self._counts.write_units += units
        self._counts.items += 1

    # objects

    async def _run_object(self, key: str, version: int) -> None:
        try:
            data = await self._container.store.read(key, size_max=BODY_BYTES_MAX)
            if is_encrypted(data):
                data_key = await self._cipher.find_for(data)
                if data_key is None or get_key_version(data) == version:
                    return
            text = await self._container.body_files.read(key, BODY_BYTES_MAX)
        except NotFound:
            return
        except CorruptData as exc:
            self._counts.refused += 1
            log.error("reencryption.refused", key=key, error=exc.message)
            return
        await self._container.body_files.put(key, text)
        self._counts.objects += 1

    async def _run_segments(self, chat: ChatId) -> None:
        archiver = self._container.get(ArchiveContainer).archiver
        for _ in range(TRIES_MAX):
            try:
                self._counts.segments += await archiver.reencrypt(chat)
            except Conflict:
                continue  # the archive worker changed the archive during the call
            except CorruptData as exc:
                self._counts.refused += 1
                log.error("reencryption.refused", chat=chat, error=exc.message)
            return
        raise Unavailable(f"archive of {chat}: keeps changing; run the command again")

    # progress

    async def _find_progress(self, version: int) -> ReencryptionPosition:
        item = await self._directory.find((PARTITION, ROW))
        if item is not None:
            progress = decode_progress(item)
            if progress.version == version:
                return progress
        return ReencryptionPosition(version)

    async def _put_progress(self, progress: ReencryptionPosition) -> None:
        text = msgspec.json.encode(progress).decode()
        await self._directory.put((PARTITION, ROW), {Field.PROGRESS: text})


def _split_copy(item: Item) -> tuple[Item, Item]:
    """Return `item` with the body of a legal-hold copy in its own attribute, and `item` as stored.

    Earlier releases stored a short body in the JSON of the copy.
    """
    if MessageField.COPY not in item or MessageField.BODY in item:
        return item, item
    copy = codec.decode_message(item[MessageField.COPY]["S"].encode())
    encoded = encode_copy(copy)
    texts = {MessageField.COPY, MessageField.BODY, MessageField.ATTACHMENTS} & encoded.keys()
    return {**item, **{name: encoded[name] for name in texts}}, item
