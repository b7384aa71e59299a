"""Long bodies: kept as objects beside table `messages`, so that an item stays small.

A body of more than `warm.body_inline_bytes_max` bytes is an object in the bucket; the item has an
empty `body`, and of the text its SHA-256 and its length:

    body S ""   body_sha256 S (hex)   body_bytes N

The object is ``bodies/<chat>/<ts, 20 digits>-<mid>-<edit>``, where `edit` is the seq of the edit
that gave the message its body, 0 as sent. What a message said by then never changes, so an object
never does: writing it again changes nothing, and no key is ever used for another text.

The object is written before the item that points to it, and removed after the item points to it no
more. Who dies in between leaves an object that nobody points to; `find_orphans` tells those, and
`workers.bodysweep` removes them. An item that points to an object which is not there does not come
about by any death.

Nobody waits for the bucket to write: while it is away bodies stay in their items, which have room
for the longest that there may be.
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
from chatserver.domain.shards import chat_of
from chatserver.errors import ChatError, ConfigError, NotFound, TooLarge, Unavailable
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.batches import get_items
from chatserver.warm.chatrows import ChatRows, key_of
from chatserver.warm.client import DynamoClient, Item
from chatserver.warm.shardlist import ShardList
from chatserver.warm.tables import MESSAGES
from chatserver.warm.tables import MessageField as Field

log = structlog.get_logger()

PREFIX: Final = "bodies/"
AWAY_S: Final = 30.0  # so long the bucket is not asked again when it was away
TRANSFERS_MAX: Final = 8  # at once, of one process

Decode = Callable[[Item], Message]


class BodyObjects(Protocol):
    """The objects; `read` raises NotFound."""

    async def put(self, key: str, data: bytes) -> None: ...

    async def read(self, key: str, size_max: int) -> bytes: ...

    async def remove(self, key: str) -> None: ...

    async def list_keys(self, prefix: str) -> list[str]: ...


def object_of(item: Item) -> str | None:
    """Return the key of the object that an item points to; None: its body is its own.

    What a release that knows no such objects changed has a body of its own again, or none.
    """
    if Field.BODY_SHA256 not in item or item[Field.BODY]["S"] or Field.DELETED in item:
        return None
    edit = item.get(Field.EDITED_SEQ, {"N": "0"})["N"]
    chat, ts = chat_of(item[Field.CHAT]["S"]), int(item[Field.TS]["N"])
    return f"{PREFIX}{chat}/{ts:020d}-{item[Field.MID]['S']}-{edit}"


def pointer_to(data: bytes) -> Item:
    """Return what an item has in the place of a body that is an object."""
    return {
        Field.BODY: {"S": ""},
        Field.BODY_SHA256: {"S": hashlib.sha256(data).hexdigest()},
        Field.BODY_BYTES: {"N": str(len(data))},
    }


def place_of_object(key: str) -> tuple[str, int] | None:
    """Return the chat and ts of the item that may point to an object; None: it is none of ours."""
    chat, _, name = key.removeprefix(PREFIX).partition("/")
    ts = name.partition("-")[0]
    return (chat, int(ts)) if chat and len(ts) == 20 and ts.isdigit() else None


class LongBodies:
    """Takes long bodies out of items, and puts them back into messages."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        objects: BodyObjects,
        clock: Clock | None = None,
        shards: ShardList | None = None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._clock = clock or SystemClock()
        self._rows = ChatRows(client, settings, self._clock, shards)
        self._table = MESSAGES.name_in(settings)
        self._inline_max = settings.body_inline_bytes_max
        self._timeout_s = settings.body_put_timeout_s
        self._slots = asyncio.Semaphore(TRANSFERS_MAX)
        self._away_until = float("-inf")

    # writing

    async def offload(self, items: Sequence[Item]) -> list[Item]:
        """Return items as they are to be stored: long bodies are objects now, if that can be.

        Guarantees:
            Idempotent. The objects are there when it returns.
            Bounded: `body_put_timeout_s`; then, and for `AWAY_S`, bodies stay in their items.
        """
        is_away = self._clock.monotonic() < self._away_until
        if is_away or not any(self._is_long(item) for item in items):
            return list(items)
        made = await asyncio.gather(*map(self._offload, items))
        failpoint("bodies.after_objects")
        return made

    def _is_long(self, item: Item) -> bool:
        body: str = item.get(Field.BODY, {"S": ""})["S"]
        # Of a text that may be too long: its bytes are counted only then.
        return len(body) * 4 > self._inline_max and len(body.encode()) > self._inline_max

    async def _offload(self, item: Item) -> Item:
        if not self._is_long(item):
            return item
        data: bytes = item[Field.BODY]["S"].encode()
        short = item | pointer_to(data)
        key = object_of(short)
        assert key is not None
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                if self._clock.monotonic() >= self._away_until:
                    await self._objects.put(key, data)
                    metrics.LONG_BODIES.labels("stored").inc()
                    return short
        except (TimeoutError, Unavailable, ConfigError) as exc:
            self._away_until = self._clock.monotonic() + AWAY_S
            log.warning("bodies.inline", why=exc.message if isinstance(exc, ChatError) else "slow")
        metrics.LONG_BODIES.labels("inline").inc()
        return item

    async def drop(self, key: str) -> None:
        """Remove an object that no item points to any more. What fails is left to the sweep."""
        failpoint("bodies.before_drop")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._objects.remove(key)
        except (TimeoutError, Unavailable, ConfigError) as exc:
            log.warning("bodies.left", key=key, why=str(exc))
        else:
            metrics.LONG_BODIES.labels("removed").inc()

    async def drop_all(self, chat: str, ts: int) -> None:
        """Remove what there is of a message that was deleted. What fails is left to the sweep."""
        if self._clock.monotonic() < self._away_until:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                keys = await self._objects.list_keys(f"{PREFIX}{chat}/{ts:020d}-")
        except (TimeoutError, Unavailable, ConfigError) as exc:
            self._away_until = self._clock.monotonic() + AWAY_S
            log.warning("bodies.not_listed", chat=chat, why=str(exc))
            return
        for key in keys:
            await self.drop(key)

    # reading

    async def load(
        self, items: Sequence[Item], messages: list[Message], decode: Decode
    ) -> list[Message | None]:
        """Return the messages of items, with the bodies that are objects.

        None for one whose item is gone by now: it was moved to the archive.

        Guarantees:
            Each body is the one that the item means, by its checksum, or this raises.
            `TRANSFERS_MAX` objects are read at once.

        Raises:
            Unavailable: the bucket does not answer, or does not have an object that it should.
        """
        pairs = zip(items, messages, strict=True)
        return await asyncio.gather(*(self._load(*pair, decode) for pair in pairs))

    async def _load(self, item: Item, message: Message, decode: Decode) -> Message | None:
        key = object_of(item)
        if key is None:
            return message
        body = await self._read(key, item)
        if body is None:
            # It may have been changed, and its object removed, since the item was read.
            named = {name: item[name] for name in MESSAGES.key.names}
            found = await get_items(self._client, self._table, [named])
            if not found:
                return None
            (now,) = found
            if (other := object_of(now)) is None:
                return decode(now)
            if (body := await self._read(other, now)) is None:
                metrics.HISTORY_GAPS.labels("body").inc()
                log.error("bodies.missing", key=other)
                raise Unavailable(f"message {message.seq}: its text cannot be read now")
            message = decode(now)
        return msgspec.structs.replace(message, body=body.decode())

    async def _read(self, key: str, item: Item) -> bytes | None:
        """Return the object; None: it is not there, or not the one that the item means."""
        size = int(item[Field.BODY_BYTES]["N"])
        try:
            async with self._slots:
                data = await self._objects.read(key, size)
        except (NotFound, TooLarge):
            return None
        except ConfigError as exc:
            raise Unavailable(f"long bodies: {exc.message}") from exc
        return data if hashlib.sha256(data).hexdigest() == item[Field.BODY_SHA256]["S"] else None

    # what nobody points to

    async def find_orphans(self, keys: Sequence[str]) -> list[str]:
        """Return those of some objects that no item points to. Consistent.

        Raises:
            Unavailable: DynamoDB does not answer.
        """
        places = {key: place_of_object(key) for key in keys}
        wanted = {place for place in places.values() if place is not None}
        layouts = await self._rows.layouts()
        rows = [key_of(layouts, chat, ts) for chat, ts in sorted(wanted)]
        items = await get_items(self._client, self._table, rows)
        in_use = {object_of(item) for item in items}
        return [key for key, place in places.items() if place is not None and key not in in_use]


class NoBodies:
    """Where there is no bucket: bodies stay in their items."""

    async def offload(self, items: Sequence[Item]) -> list[Item]:
        """Return the items as they are."""
        return list(items)

    async def drop(self, key: str) -> None:
        """Leave it to the sweep."""

    async def drop_all(self, chat: str, ts: int) -> None:
        """Leave it to the sweep."""

    async def load(
        self, items: Sequence[Item], messages: list[Message], decode: Decode
    ) -> list[Message | None]:
        """Refuse: an empty text must not pass for what was said."""
        raise Unavailable("long bodies: there is no bucket to read them from here")


Bodies = LongBodies | NoBodies
