"""Helpers of the encryption tests: a worker process with keys, and reads of the raw stores."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zstandard

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Cold, Encryption, Warm
from chatserver.container.storage import StorageContainer
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY
from chatserver.domain.ids import ChatId
from chatserver.encryption.key_file import new_line
from chatserver.errors import Unavailable
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import decode_bytes
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.encryption.data_keys import DataKeys
from chatserver.warm.messages.messages import PersistItem
from chatserver.warm.schema.tables import TABLES
from tests.integration.warm.support import create_tables, message, settings_for
from tests.integration.workers.support import open_container
from tests.support.constants import constants
from tests.support.servers.processes import eventually
from workers.archive.container import ArchiveContainer

T = TypeVar("T")

OLD_TS = 1_600_000_000_000_000
SECRET_WORD = "xylophone"  # in every body
INLINE_MAX = 1000

# With the default, long bodies would stay in their items if S3 is slow.
PATIENT = {"chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": 60.0}


@dataclasses.dataclass
class Vault:
    """The stores of a deployment. `raw` reads DynamoDB without decryption."""

    redis_url: str
    warm: Warm
    cold: Cold
    encryption: Encryption
    raw: DynamoClient
    store: ObjectStore

    @contextlib.asynccontextmanager
    async def process(
        self, encryption: Encryption | None = None, tenant: str | None = None
    ) -> AsyncIterator[Process]:
        """Start the components of a worker process, with separate caches."""
        warm = self.warm if tenant is None else self.warm.model_copy(update={"tenant": tenant})
        archive = config.Archive(
            retention_s=1, segment_entries_min=1, segment_entries_max=40, wait_s=0
        )
        # Each tenant has a separate Redis.
        url = self.redis_url if tenant != "zeta" else f"{self.redis_url.rpartition('/')[0]}/1"
        async with open_container(
            url,
            warm,
            cold=self.cold,
            archive=archive,
            encryption=encryption or self.encryption,
        ) as container:
            yield Process(container)

    @property
    def off(self) -> Encryption:
        """The settings without encryption."""
        return Encryption()

    def keys(self) -> DataKeys:
        """Return the repository of wrapped keys."""
        return DataKeys(self.raw)

    async def scan(self) -> list[tuple[str, Item]]:
        """Return every item of every table as stored, with the table name."""
        found: list[tuple[str, Item]] = []
        for table in TABLES:
            request: dict[str, Any] = {"TableName": table.name_in(self.warm)}
            while True:
                answer = await self.raw.call("scan", request)
                found += [(table.name, item) for item in answer["Items"]]
                if (last := answer.get("LastEvaluatedKey")) is None:
                    break
                request["ExclusiveStartKey"] = last
        return found

    async def item(self, chat: str, ts: int) -> Item:
        """Return an item as stored."""
        table = f"{self.warm.table_prefix}messages"
        key = {"chatid": {"S": chat}, "ts": {"N": str(ts)}}
        answer = await self.raw.call(
            "get_item", {"TableName": table, "Key": key, "ConsistentRead": True}
        )
        item: Item = answer["Item"]
        return item

    async def put(self, item: Item) -> None:
        """Write an item without the product, like an intruder."""
        await self.raw.call(
            "put_item", {"TableName": f"{self.warm.table_prefix}messages", "Item": item}
        )

    async def objects(self) -> dict[str, bytes]:
        """Return every object of the bucket, decompressed."""
        listed = await self.store.call("list_objects_v2")
        found = {}
        for each in listed.get("Contents", ()):
            data = await self.store.read(each["Key"], size_max=1 << 24)
            if each["Key"].endswith(".zst"):
                data = zstandard.ZstdDecompressor().decompress(data)
            found[each["Key"]] = data
        return found

    async def find_word(self, word: str = SECRET_WORD) -> list[str]:
        """Return the items and object keys that contain a word."""
        found = [
            f"{table}: {item}"
            for table, item in await self.scan()
            if word.encode() in _bytes_in(item)
        ]
        objects = await self.objects()
        return found + [key for key, data in objects.items() if word.encode() in data]


def _bytes_in(item: Item) -> bytes:
    """Return an item's JSON and its decoded binary values."""
    values = [decode_bytes(value) for value in item.values() if "B" in value]
    return b"\n".join([msgspec.json.encode(item), *values])


@dataclasses.dataclass
class Process:
    """A worker process, and a chat."""

    container: StorageContainer
    chat: str = dataclasses.field(default_factory=lambda: f"d-{secrets.token_hex(6)}")

    async def write(self, *seqs: int, chat: str | None = None, **changes: Any) -> None:
        """Persist messages of 2020 with bodies that contain the secret word."""
        await _until_available(lambda: self.write_once(*seqs, chat=chat, **changes))

    async def write_once(self, *seqs: int, chat: str | None = None, **changes: Any) -> None:
        """Write like `write`, but do not retry if a store is unavailable."""
        messages = [self.made(seq, chat or self.chat, **changes) for seq in seqs]
        await self.container.messages.put_batch([PersistItem(m, "bob") for m in messages], 20)

    def made(self, seq: int, chat: str | None = None, **changes: Any) -> Any:
        """Create a message as `write` stores it."""
        fields = {"ts": OLD_TS + seq * 1000, "body": text_of(seq), **changes}
        return message(seq, chat or self.chat, **fields)

    async def archive(self, chat: str) -> None:
        """Archive a whole chat in S3."""
        archiver = self.container.get(ArchiveContainer).archiver
        await _until_available(lambda: archiver.archive_chat(ChatId(chat)))

    async def read(self, chat: str, limit: int = 200) -> list[Any]:
        """Return the entries of a chat from DynamoDB and S3."""
        page = await self.container.older_tiers.read_run(chat, None, 0, limit, None)
        return page.messages

    async def bodies(self, chat: str) -> list[str]:
        """Return the bodies of a chat."""
        found = await _until_available(lambda: self.read(chat))
        return [each.body for each in found]


async def _until_available(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry while KMS exceeds the deadline of a call, which happens on a slow machine."""

    async def once() -> tuple[T] | None:
        try:
            return (await attempt(),)
        except Unavailable:
            return None

    done = await eventually(once, what="DynamoDB and KMS respond")
    assert done is not None
    return done[0]


def text_of(seq: int) -> str:
    """Return the body of a message."""
    return f"{SECRET_WORD} {seq} ⟨é⟩"


LONG = f"{SECRET_WORD} " + "long " * INLINE_MAX


@contextlib.asynccontextmanager
async def open_vault(
    redis_url: str, dynamodb: str, s3: str, folder: Path, **encryption: Any
) -> AsyncIterator[Vault]:
    """Create tables and a bucket for a test, with a key file unless `encryption` is given."""
    warm = settings_for(dynamodb, body_inline_bytes_max=INLINE_MAX)
    cold = Cold(
        endpoint=s3,
        bucket=f"b{secrets.token_hex(8)}",
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,  # type: ignore[arg-type]  # pydantic makes it secret
    )
    path = folder / "keys"
    path.write_text(new_line())
    keys = Encryption(**(encryption or {"provider": "file", "key_file": path}))
    with constants(PATIENT):
        async with open_dynamodb(warm) as raw, open_s3(cold) as store:
            create_tables(warm)
            await apply_bucket(store, cold)
            yield Vault(redis_url, warm, cold, keys, raw, store)
