"""What the tests of the archive build with: a chat in the warm tier, and a look at every object."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import zstandard

from chatserver import config
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Cold
from chatserver.domain.ids import ChatId
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.warm.aged import AgedMessages
from chatserver.warm.messages import PersistItem
from chatserver.warm.tables import MESSAGES
from tests.integration.warm_support import Tables, message
from tests.integration.worker_support import open_parts
from workers import archiver
from workers.archiver import Archiver
from workers.parts import WorkerParts

CHAT = ChatId("d-archive")
OLD_TS = 1_600_000_000_000_000
STEPS = (
    "archive.before_object",
    "archive.after_object",
    "archive.before_commit",
    "archive.after_commit",
    "archive.after_remove",
)


class Died(Exception):
    """The worker came to its end here."""


class World:
    """The parts of a worker process, and the bucket it archives to."""

    def __init__(self, parts: WorkerParts, tables: Tables, store: ObjectStore) -> None:
        self.parts = parts
        self.tables = tables
        self.store = store

    async def put(self, *messages: Message) -> None:
        """Write entries into the warm tier, as the persister does."""
        await self.parts.messages.put_batch([PersistItem(m, "bob") for m in messages], 20)

    async def walk_down(self, chat: ChatId = CHAT, limit: int = 50) -> list[Message]:
        """Read a chat page by page, newest first; return it oldest first."""
        found: list[Message] = []
        before: int | None = None
        while True:
            page = await self.parts.older.read_run(chat, before, None, limit, None)
            found = page.messages + found
            if not page.messages or page.messages[0].seq == 1:
                return found
            before = page.messages[0].seq

    async def walk_up(self, chat: ChatId = CHAT, limit: int = 50) -> list[Message]:
        """Read a chat page by page, oldest first."""
        found: list[Message] = []
        while True:
            after = found[-1].seq if found else 0
            page = await self.parts.older.read_run(chat, None, after, limit, None)
            found += page.messages
            if not page.messages:
                return found

    async def warm_seqs(self, chat: ChatId = CHAT) -> list[int]:
        """The seqs of the items that the warm tier has of a chat."""
        rows = await self.tables.scan(MESSAGES.name)
        return sorted(int(row["seq"]["N"]) for row in rows if row["chatid"]["S"] == chat)

    async def objects(self) -> dict[str, bytes]:
        """All objects of the archive, unpacked."""
        listed = await self.store.call("list_objects_v2", Prefix="archive/")
        found = {}
        for each in listed.get("Contents", ()):
            data = await self.store.read(each["Key"], size_max=1 << 24)
            found[each["Key"]] = zstandard.ZstdDecompressor().decompress(data)
        return found

    async def keys_of_segments(self, chat: ChatId = CHAT) -> list[str]:
        """The objects that the manifest names."""
        return [each.key for each in await self.parts.manifests.list_covering(chat, 1, 10**9)]


@contextlib.asynccontextmanager
async def open_world(
    redis_url: str, tables: Tables, cold: Cold, **settings: Any
) -> AsyncIterator[World]:
    """Put it together."""
    archive = config.Archive(
        **{
            "retention_s": 1,
            "segment_entries_min": 1,
            "segment_entries_max": 40,
            "wait_s": 0,
            **settings,
        }
    )
    async with (
        open_s3(cold) as store,
        open_parts(redis_url, tables.settings, cold=cold, archive=archive) as parts,
    ):
        await apply_bucket(store, cold)
        yield World(parts, tables, store)


@contextlib.contextmanager
def at_step(
    monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], None], times: int = 1
) -> Iterator[None]:
    """Have something done when the archiver comes to a step for the first time."""
    left = times

    def failpoint(name: str) -> None:
        nonlocal left
        if name == step and left:
            left -= 1
            act()

    with monkeypatch.context() as patch:
        patch.setattr(archiver, "failpoint", failpoint)
        yield
    assert left == 0, f"never came to {step}"


def die() -> None:
    """End as a killed process does, as far as what it wrote goes."""
    raise Died


def old(seq: int, **changes: Any) -> Message:
    """A message of the chat, of 2020."""
    return message(seq, CHAT, **{"ts": OLD_TS + seq * 1000, "body": f"text {seq} ⟨é⟩", **changes})


def texts_of(count: int, start: int = 1) -> list[Message]:
    """Messages of the chat, long past."""
    return [old(seq) for seq in range(start, start + count)]


def encoded(messages: list[Message]) -> list[bytes]:
    """What readers get, to the byte."""
    return [codec.encode(each) for each in messages]


class Interrupted(AgedMessages):
    """The warm tier's old entries; something happens just before they are removed."""

    def __init__(self, world: World, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(world.tables.client, world.tables.settings, world.parts.clock)
        self._meanwhile: Callable[[], Awaitable[Any]] | None = meanwhile

    async def remove(self, entries: Sequence[Message], in_flight_max: int) -> int:
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return await super().remove(entries, in_flight_max)


def interrupted_archiver(world: World, meanwhile: Callable[[], Awaitable[Any]]) -> Archiver:
    """An archiver that something happens to between its commit and its removals."""
    settings, parts = world.parts.settings.archive, world.parts
    objects = SegmentObjects(world.store, settings)
    aged = Interrupted(world, meanwhile)
    return Archiver(parts.manifests, objects, aged, settings, parts.clock)
