"""Long message bodies: stored as S3 objects so that items in table `messages` stay small.

A body of more than `warm.body_inline_bytes_max` bytes is stored as an object; its item has an empty
`body`, and the SHA-256 and length of the actual body:

    body S ""   body_sha256 S (hex)   body_bytes N

The object key is ``bodies/<chat>/<ts, 20 digits>-<mid>-<edit>``. `edit` is the seq of the edit that
set the body, or 0 for the original body. An object never changes and a key is never reused for
another body, so writes are idempotent.

The object is written before the item that points to it, and removed once no item points to it. A
crash between these steps leaves an orphaned object, which `workers.archive.long_body_sweep`
removes. A crash never leaves an item without its object.

While S3 is unavailable, bodies are stored in their items, which have room for the longest allowed
body.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.write_sharding import get_partition_chat
from chatserver.errors import S3_DOWN, ChatError, ConfigError, NotFound, TooLarge, Unavailable
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

log = structlog.get_logger()

BODY_PUT_TIMEOUT_S = 1.5  # S3 counts as unavailable if storing a body takes longer

PREFIX: Final = "bodies/"
S3_PAUSE_S: Final = 30.0  # after a failure, S3 gets no request for this time
TRANSFERS_MAX: Final = 8  # maximum concurrent transfers per process

Decode = Callable[[Item], Message]


class BodyObjects(Protocol):
    """Storage for body objects. `read` raises NotFound."""

    async def put(self, key: str, data: bytes) -> None: ...

    async def read(self, key: str, size_max: int) -> bytes: ...

    async def remove(self, key: str) -> None: ...

    async def list_keys(self, prefix: str) -> list[str]: ...


def get_object_key(item: Item) -> str | None:
    """Return the key of an item's body object, or None if the body is in the item.

    If a release without long bodies has changed the item, its body is in the item or absent.
    """
    if Field.BODY_SHA256 not in item or Field.DELETED in item:
        return None
    if item[Field.BODY].get("S") != "":
        return None
    edit = item.get(Field.EDITED_SEQ, {"N": "0"})["N"]
    chat, ts = get_partition_chat(item[Field.CHAT]["S"]), int(item[Field.TS]["N"])
    return f"{PREFIX}{chat}/{ts:020d}-{item[Field.MID]['S']}-{edit}"


def build_pointer(data: bytes) -> Item:
    """Return the attributes that replace the body in an item, given the body's bytes."""
    return {
        Field.BODY: {"S": ""},
        Field.BODY_SHA256: {"S": hashlib.sha256(data).hexdigest()},
        Field.BODY_BYTES: {"N": str(len(data))},
    }


def parse_object_key(key: str) -> tuple[str, int] | None:
    """Return `(chat, ts)` of the message whose body the object holds; None for other keys."""
    chat, _, name = key.removeprefix(PREFIX).partition("/")
    ts = name.partition("-")[0]
    return (chat, int(ts)) if chat and len(ts) == 20 and ts.isdigit() else None


class LongBodies:
    """Moves long bodies from items to S3 objects, and loads them into messages."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        objects: BodyObjects,
        clock: Clock | None = None,
        shards: ShardedChats | None = None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._clock = clock or SystemClock()
        self._rows = ChatPartitionReads(client, self._clock, shards)
        self._table = MESSAGES.name_in(settings)
        self._inline_max = settings.body_inline_bytes_max
        self._timeout_s = BODY_PUT_TIMEOUT_S
        self._slots = asyncio.Semaphore(TRANSFERS_MAX)
        self._down_until = float("-inf")

    # Writes.

    async def offload(self, items: Sequence[Item]) -> list[Item]:
        """Return items with long bodies replaced by pointers to objects, if S3 is available.

        Guarantees:
            Idempotent. The objects are stored when this returns.
            Bounded: takes at most `BODY_PUT_TIMEOUT_S`. If S3 does not respond, bodies stay in
            their items, in this call and in calls during the next `S3_PAUSE_S`.
        """
        is_down = self._clock.monotonic() < self._down_until
        if is_down or not any(self._is_long(item) for item in items):
            return list(items)
        offloaded = await asyncio.gather(*map(self._offload, items))
        failpoint("bodies.after_objects")
        return offloaded

    def _is_long(self, item: Item) -> bool:
        body: str = item.get(Field.BODY, {"S": ""})["S"]
        # Encode the body only if it may be too long: a character takes at most 4 bytes.
        return len(body) * 4 > self._inline_max and len(body.encode()) > self._inline_max

    async def _offload(self, item: Item) -> Item:
        if not self._is_long(item):
            return item
        data: bytes = item[Field.BODY]["S"].encode()
        short = item | build_pointer(data)
        key = get_object_key(short)
        assert key is not None
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                if self._clock.monotonic() >= self._down_until:
                    await self._objects.put(key, data)
                    metrics.LONG_BODIES.labels("stored").inc()
                    return short
        except (TimeoutError, Unavailable, ConfigError) as exc:
            self._down_until = self._clock.monotonic() + S3_PAUSE_S
            log.warning(
                "bodies.stored_inline",
                error=exc.message if isinstance(exc, ChatError) else "timed_out",
            )
        metrics.LONG_BODIES.labels("inline").inc()
        return item

    async def drop(self, key: str) -> None:
        """Remove an object that no item points to.

        If this fails, `long_body_sweep` removes it later.
        """
        failpoint("bodies.before_drop")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._objects.remove(key)
        except (TimeoutError, Unavailable, ConfigError) as exc:
            log.warning("bodies.delete_failed", key=key, error=str(exc))
        else:
            metrics.LONG_BODIES.labels("removed").inc()

    async def drop_all(self, chat: str, ts: int) -> None:
        """Remove all of a deleted message's body objects; see `drop`."""
        if self._clock.monotonic() < self._down_until:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                keys = await self._objects.list_keys(f"{PREFIX}{chat}/{ts:020d}-")
        except (TimeoutError, Unavailable, ConfigError) as exc:
            self._down_until = self._clock.monotonic() + S3_PAUSE_S
            log.warning("bodies.list_failed", chat=chat, error=str(exc))
            return
        for key in keys:
            await self.drop(key)

    # Reads.

    async def load(
        self, items: Sequence[Item], messages: list[Message], decode: Decode
    ) -> list[Message | None]:
        """Return the messages of `items` with their long bodies.

        A message is None if it was moved to the archive after its item was read.

        Guarantees:
            Each body matches the SHA-256 in its item; otherwise this raises.
            At most `TRANSFERS_MAX` objects are read concurrently.

        Raises:
            Unavailable: S3 does not respond, or an expected object is missing.
        """
        pairs = zip(items, messages, strict=True)
        return await asyncio.gather(*(self._load(*pair, decode) for pair in pairs))

    async def _load(self, item: Item, message: Message, decode: Decode) -> Message | None:
        key = get_object_key(item)
        if key is None:
            return message
        body = await self._read(key, item)
        if body is None:
            # Since the item was read, it may have changed, and its object may have been removed.
            named = {name: item[name] for name in MESSAGES.key.names}
            items = await get_items(self._client, self._table, [named])
            if not items:
                return None
            (now,) = items
            if (other := get_object_key(now)) is None:
                return decode(now)
            if (body := await self._read(other, now)) is None:
                metrics.HISTORY_GAPS.labels("body").inc()
                log.error("bodies.missing", key=other)
                raise Unavailable(f"message {message.seq}: the text is unavailable now; try again")
            message = decode(now)
        return msgspec.structs.replace(message, body=body.decode())

    async def _read(self, key: str, item: Item) -> bytes | None:
        """Return the object, or None if it is missing or does not match the item."""
        size = int(item[Field.BODY_BYTES]["N"])
        try:
            async with self._slots:
                data = await self._objects.read(key, size)
        except (NotFound, TooLarge):
            return None
        except ConfigError as exc:
            raise Unavailable(f"long bodies: {exc.message}", public=S3_DOWN) from exc
        return data if hashlib.sha256(data).hexdigest() == item[Field.BODY_SHA256]["S"] else None

    # Orphaned objects.

    async def find_orphans(self, keys: Sequence[str]) -> list[str]:
        """Return the keys among `keys` that no item points to. Strongly consistent.

        Raises:
            Unavailable: DynamoDB does not respond.
        """
        positions = {key: parse_object_key(key) for key in keys}
        known_positions = {position for position in positions.values() if position is not None}
        rows = await self._rows.list_keys(sorted(known_positions))
        items = await get_items(self._client, self._table, rows)
        in_use = {get_object_key(item) for item in items}
        return [
            key for key, position in positions.items() if position is not None and key not in in_use
        ]


class NoBodies:
    """Null implementation for deployments without S3: bodies stay in their items."""

    async def offload(self, items: Sequence[Item]) -> list[Item]:
        """Return the items unchanged."""
        return list(items)

    async def drop(self, key: str) -> None:
        """Do nothing; `long_body_sweep` removes the object."""

    async def drop_all(self, chat: str, ts: int) -> None:
        """Do nothing; `long_body_sweep` removes the objects."""

    async def load(
        self, items: Sequence[Item], messages: list[Message], decode: Decode
    ) -> list[Message | None]:
        """Raise Unavailable, because an empty string must not be returned as the body."""
        raise Unavailable("long bodies: this process has no S3 bucket to read them from")


Bodies = LongBodies | NoBodies
