"""Support of the tests of long bodies: a chat, and its items and objects."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from chatserver.cold.long_bodies import BodyFiles
from chatserver.protocol.frames import Message
from chatserver.warm.archive.archivable_entries import ArchivableMessages
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.messages.long_bodies import LongBodies, object_of
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.store import MessageRepository
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import message
from tests.integration.workers.archive.support import World
from workers.archive.body_sweep import BodySweeper

INLINE_MAX = 300
LONG = "a long text ⟨é⟩ " * 60


@dataclasses.dataclass
class Shelf(World):
    """A world whose long bodies are objects, and a chat of the test's own."""

    async def items(self) -> list[Item]:
        """The chat's items, as they are in the table."""
        query = {
            **Span(MESSAGES, self.chat).query(self.container.settings.warm),
            "ConsistentRead": True,
        }
        items: list[Item] = (await self.client.call("query", query))["Items"]
        return items

    async def keys(self) -> set[str]:
        """The objects of the chat's bodies."""
        return {
            each.key
            async for page in self.container.body_files.iter_pages(f"bodies/{self.chat}/")
            for each in page
        }

    async def assert_tidy(self) -> None:
        """See that each object is pointed to, and each pointer leads to the text that it means."""
        pointed = {key: item for item in await self.items() if (key := object_of(item))}
        assert await self.keys() == set(pointed)
        for key, item in pointed.items():
            data = await self.store.read(key, size_max=1 << 20)
            assert hashlib.sha256(data).hexdigest() == item["body_sha256"]["S"]

    async def sweep(self, settle_s: float = -60.0) -> int:
        """Remove unreferenced objects, however new they are."""
        sweeper = BodySweeper(self.container, "test", settle_s)
        return await sweeper.sweep(f"bodies/{self.chat}/")

    def aged_with_bodies(self) -> ArchivableMessages:
        """The warm tier, by time."""
        warm, clock = self.container.settings.warm, self.container.clock
        return ArchivableMessages(self.client, warm, clock, bodies=self.container.long_bodies)

    def repository(self, files: BodyFiles, **changes: Any) -> MessageRepository:
        """Messages over another way to the bucket."""
        warm = self.container.settings.warm.model_copy(update=changes)
        made = LongBodies(self.client, warm, files, self.container.clock)
        return MessageRepository(self.client, warm, bodies=made)

    def changes(self) -> MessageChanges:
        """The message changes of the persist worker."""
        return self.container.message_changes

    def recent(self, seq: int, body: str, **changes: Any) -> Message:
        """A message of the chat."""
        return message(seq, self.chat, body=body, **changes)

    def entry(self, seq: int, kind: str, target: int, body: str = "", **more: Any) -> Message:
        """A change of one."""
        return self.recent(seq, body, kind=kind, target=target, **more)
