"""Helpers of the archive tests: a chat in the warm tier, and reads of its objects."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal

import pytest
import zstandard

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.config import Cold, Warm
from chatserver.container.storage import StorageContainer
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.messages.messages import PersistItem
from tests.integration.warm.support import create_tables, message
from tests.integration.workers.support import open_container
from workers.archive import archiver, segment_rewriter
from workers.archive.archiver import Archiver, ArchiveResult
from workers.archive.container import ArchiveContainer

OLD_TS = 1_600_000_000_000_000
STEPS = (
    "archive.before_object",
    "archive.after_object",
    "archive.before_commit",
    "archive.after_commit",
    "archive.after_remove",
)


class Crashed(Exception):
    """Raised at a failpoint in place of a process crash."""


@dataclasses.dataclass
class World:
    """The components of a worker process, the bucket of the archive, and a chat."""

    container: StorageContainer
    client: DynamoClient
    store: ObjectStore
    chat: ChatId

    @property
    def archivable(self) -> ArchivableEntries:
        """The reader of archivable entries in the warm tier."""
        return ArchivableEntries(self.client, self.container.clock)

    def old(self, seq: int, **changes: Any) -> Message:
        """Create a message of the chat, sent in 2020."""
        fields = {"ts": OLD_TS + seq * 1000, "body": f"text {seq} ⟨é⟩", **changes}
        return message(seq, self.chat, **fields)

    def texts(self, count: int, start: int = 1) -> list[Message]:
        """Create messages of the chat, sent in 2020."""
        return [self.old(seq) for seq in range(start, start + count)]

    async def archive_old(self) -> ArchiveResult:
        """Archive the old entries of the chat."""
        return await self.container.get(ArchiveContainer).archiver.archive_chat(self.chat)

    async def merge_changes(self) -> None:
        """Write the late changes of the chat to its segments."""
        await self.container.get(ArchiveContainer).archiver.merge_changes(self.chat)

    async def apply(self, target: Message, change: Message) -> None:
        """Store a change of a message, as the persist worker does."""
        await self.container.message_changes.apply(self.chat, target.ts, [change])

    def archiver(
        self,
        archivable: ArchivableEntries | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> Archiver:
        """Return another archiver with changed settings."""
        archive = self.container.settings.archive.model_copy(update=settings)
        clock = clock or self.container.clock
        return Archiver(
            manifests=self.container.manifests,
            objects=SegmentObjects(self.store, archive),
            archivable=archivable or ArchivableEntries(self.client, clock),
            settings=archive,
            clock=clock,
            restored=self.container.restored,
            users=self.container.user_positions,
        )

    def reader(
        self, archivable: ArchivableEntries | None = None, **settings: Any
    ) -> WarmAndColdLog:
        """Return another reader with a separate cache."""
        archive = self.container.settings.archive.model_copy(update=settings)
        objects = SegmentObjects(self.store, archive)
        return WarmAndColdLog(self.container.messages, self.cold_log(objects, archivable))

    def cold_log(
        self, objects: SegmentObjects, archivable: ArchivableEntries | None = None
    ) -> ColdLog:
        """Return another reader of the archive."""
        return ColdLog(
            manifests=self.container.manifests,
            segments=objects,
            items=archivable or self.archivable,
            clock=self.container.clock,
        )

    async def put(self, *messages: Message) -> None:
        """Write entries to DynamoDB as the persist worker does."""
        await self.container.messages.put_batch([PersistItem(m, "bob") for m in messages], 20)

    async def read_backward(
        self, limit: int = 50, reader: WarmAndColdLog | None = None
    ) -> list[Message]:
        """Read the chat page by page, newest first; return it oldest first."""
        found: list[Message] = []
        before: int | None = None
        older = reader or self.container.older_tiers
        while True:
            page = await older.read_run(self.chat, before, None, limit, None)
            found = page.messages + found
            if not page.messages or page.messages[0].seq == 1:
                return found
            before = page.messages[0].seq

    async def read_forward(self, limit: int = 50) -> list[Message]:
        """Read the chat page by page, oldest first."""
        found: list[Message] = []
        while True:
            after = found[-1].seq if found else 0
            page = await self.container.older_tiers.read_run(self.chat, None, after, limit, None)
            found += page.messages
            if not page.messages:
                return found

    async def warm_seqs(self) -> list[int]:
        """Return the seqs of the chat's items in the warm tier."""
        return [each.seq for each in await self.archivable.list_between(self.chat, 0, 2**53 - 1)]

    async def objects(self) -> dict[str, bytes]:
        """Return all objects of the chat's archive, decompressed."""
        listed = await self.store.call("list_objects_v2", Prefix=f"archive/v1/{self.chat}/")
        found = {}
        for each in listed.get("Contents", ()):
            data = await self.store.read(each["Key"], size_max=1 << 24)
            found[each["Key"]] = zstandard.ZstdDecompressor().decompress(data)
        return found

    async def archived(self) -> bytes:
        """Return the content of all objects of the chat's archive."""
        return b"".join((await self.objects()).values())

    async def segments(self) -> list[ArchiveSegment]:
        """Return the chat's segments in the manifest."""
        return await self.container.manifests.list_covering(self.chat, 1, 10**9)

    async def assert_only_segments(self) -> None:
        """Check that the chat's objects are exactly the segments in the manifest."""
        assert sorted(await self.objects()) == [each.key for each in await self.segments()]


@contextlib.asynccontextmanager
async def open_world(redis_url: str, warm: Warm, cold: Cold) -> AsyncIterator[World]:
    """Open the stores; entries older than a second are archivable, 40 in a segment."""
    archive = config.Archive(retention_s=1, segment_entries_min=1, segment_entries_max=40, wait_s=0)
    async with (
        open_s3(cold) as store,
        open_dynamodb(warm) as client,
        open_container(redis_url, warm, cold=cold, archive=archive) as container,
    ):
        create_tables(warm)
        await apply_bucket(store, cold)
        yield World(container, client, store, ChatId("-"))


@contextlib.contextmanager
def at_step(
    monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], None], times: int = 1
) -> Iterator[None]:
    """Call `act` when the archiver reaches a failpoint, for the first `times` times."""
    left = times

    def failpoint(name: str) -> None:
        nonlocal left
        if name == step and left:
            left -= 1
            act()

    with monkeypatch.context() as patch:
        patch.setattr(archiver, "failpoint", failpoint)
        patch.setattr(segment_rewriter, "failpoint", failpoint)
        yield
    assert left == 0, f"failpoint {step} was not reached"


def crash() -> None:
    """Raise `Crashed`, in place of a killed process."""
    raise Crashed


def encoded(messages: list[Message]) -> list[bytes]:
    """Return messages in their encoded form, for byte comparison."""
    return [codec.encode(each) for each in messages]


class Interrupted(ArchivableEntries):
    """Archivable entries; an action runs once, just before they are read or removed."""

    def __init__(
        self,
        world: World,
        action: Callable[[], Awaitable[Any]],
        before: Literal["read", "remove"] = "remove",
    ) -> None:
        super().__init__(world.client, world.container.clock)
        self._action: Callable[[], Awaitable[Any]] | None = action
        self._before = before

    async def _run_action(self, operation: str) -> None:
        if self._action is not None and operation == self._before:
            action, self._action = self._action, None
            await action()

    async def list_between(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[Message]:
        await self._run_action("read")
        return await super().list_between(chat, from_ts, to_ts, limit)

    async def remove(self, entries: Sequence[Message], in_flight_max: int) -> int:
        await self._run_action("remove")
        return await super().remove(entries, in_flight_max)
