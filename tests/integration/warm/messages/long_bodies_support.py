"""Helpers for tests of long bodies: a chat, its items and its objects."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from chatserver.cold.long_bodies import BodyFiles
from chatserver.protocol.frames import Message
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.messages.long_bodies import LongBodies, get_object_key
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.messages import Messages
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import message
from tests.integration.workers.archive.support import World
from workers.archive.long_body_sweep import LongBodySweeper

INLINE_MAX = 300
LONG = "a long text ⟨é⟩ " * 60


@dataclasses.dataclass
class LongBodyWorld(World):
    """Stores in which long bodies are objects, and a chat of one test."""

    async def items(self) -> list[Item]:
        """Return the chat's items as stored."""
        return await Table(self.client, MESSAGES).query(Span(MESSAGES, self.chat))

    async def keys(self) -> set[str]:
        """Return the keys of the chat's long body objects."""
        return {
            each.key
            async for page in self.container.body_files.iter_pages(f"bodies/{self.chat}/")
            for each in page
        }

    async def assert_consistent(self) -> None:
        """Check that items refer to exactly the existing objects, with the right checksums."""
        referenced = {key: item for item in await self.items() if (key := get_object_key(item))}
        assert await self.keys() == set(referenced)
        for key, item in referenced.items():
            data = await self.store.read(key, size_max=1 << 20)
            assert hashlib.sha256(data).hexdigest() == item["body_sha256"]["S"]

    async def sweep(self, settle_s: float = -60.0) -> int:
        """Remove unreferenced objects, by default of any age."""
        sweeper = LongBodySweeper(self.container, "test", settle_s)
        return await sweeper.sweep(f"bodies/{self.chat}/")

    def archivable_with_bodies(self) -> ArchivableEntries:
        """Return the reader of archivable messages, which reads long bodies."""
        clock = self.container.clock
        return ArchivableEntries(self.client, clock, bodies=self.container.long_bodies)

    def repository(self, files: BodyFiles, **changes: Any) -> Messages:
        """Return a message repository with another object client."""
        warm = self.container.settings.warm.model_copy(update=changes)
        made = LongBodies(self.client, warm, files, self.container.clock)
        return Messages(self.client, bodies=made)

    def changes(self) -> MessageChanges:
        """Return the message changes of the persist worker."""
        return self.container.message_changes

    def recent(self, seq: int, body: str, **changes: Any) -> Message:
        """Create a message of the chat."""
        return message(seq, self.chat, body=body, **changes)

    def entry(self, seq: int, kind: str, target: int, body: str = "", **more: Any) -> Message:
        """Create a change of a message."""
        return self.recent(seq, body, kind=kind, target=target, **more)
