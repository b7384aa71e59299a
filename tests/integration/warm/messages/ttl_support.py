"""Helpers for tests of archiving with TTL: items with `ttl`, and their deletion."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from chatserver.config import Archive
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.messages import Messages, PersistItem
from chatserver.warm.messages.ttl import ItemRetention
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import FixedClock
from tests.integration.workers.archive.support import World
from workers.archive.archiver import Archiver
from workers.archive.container import ArchiveContainer
from workers.archive.ttl_removal_checks import TtlRemovalHandler

SETTINGS = {"removal": "ttl", "retention_s": 1, "segment_entries_min": 1, "wait_s": 0}
RETENTION = ItemRetention.by(Archive(removal="ttl", retention_s=1))


@dataclasses.dataclass
class TtlWorld:
    """A chat whose items TTL deletes, and the components that handle the deletions."""

    world: World
    archiver: Archiver
    changes: MessageChanges
    removals: TtlRemovalHandler
    start_us: int

    def text(self, seq: int, **changes: Any) -> Message:
        """Create a message sent two minutes ago."""
        fields = {"ts": self.start_us + seq * 1000, **changes}
        return self.world.old(seq, **fields)

    def texts(self, count: int) -> list[Message]:
        """Create messages sent two minutes ago."""
        return [self.text(seq) for seq in range(1, count + 1)]

    async def put(self, *messages: Message) -> None:
        """Write entries as the persist worker does soon after they were sent."""
        clock = FixedClock(min(each.ts for each in messages) / 1e6)
        repository = Messages(self.world.client, clock, retention=RETENTION)
        await repository.put_batch([PersistItem(each, "bob") for each in messages], 20)

    async def archive_old(self) -> int:
        """Archive old entries; return their number."""
        return (await self.archiver.archive_chat(self.world.chat)).moved

    async def change(self, kind: str, target: Message, seq: int, body: str = "") -> Message:
        """Apply and write a change of a message as the persist worker does; return the entry."""
        entry = self.text(seq, kind=kind, target=target.seq, body=body)
        await self.changes.apply(self.world.chat, target.ts, [entry])
        await self.put(entry)
        return entry

    async def items(self) -> dict[int, Item]:
        """Return the items of the chat by seq."""
        request = {
            "TableName": self._table,
            "KeyConditionExpression": "chatid = :chat",
            "ExpressionAttributeValues": {":chat": {"S": self.world.chat}},
            "ConsistentRead": True,
        }
        answer = await self.world.client.call("query", request)
        return {int(item["seq"]["N"]): item for item in answer["Items"]}

    async def delete_by_ttl(self, *seqs: int) -> list[Item]:
        """Delete items as TTL does; return them."""
        items = await self.items()
        for seq in seqs:
            key = {name: items[seq][name] for name in MESSAGES.key.names}
            await self.world.client.call("delete_item", {"TableName": self._table, "Key": key})
        return [items[seq] for seq in seqs]

    @property
    def _table(self) -> str:
        return MESSAGES.name_in(self.world.container.settings.warm)

    async def is_recorded_late(self) -> bool:
        """Return whether the archive has recorded that the chat must be checked."""
        late = await self.world.container.manifests.late.list_all()
        return self.world.chat in {each.chat for each in late}


@pytest_asyncio.fixture(loop_scope="session")
async def ttl_world(archive_world: World) -> AsyncIterator[TtlWorld]:
    """A chat that no other test uses, whose items TTL deletes."""
    container, client = archive_world.container, archive_world.client
    archiver = archive_world.archiver(**SETTINGS)
    cold = container.message_changes._archived  # the archive reader of the message changes
    changes = MessageChanges(client, None, cold, retention=RETENTION, clock=container.clock)
    removals = dataclasses.replace(
        container.get(ArchiveContainer).removals, settle_s=0.0, changes=changes
    )
    start_us = int(time.time() - 120) * 1_000_000
    yield TtlWorld(archive_world, archiver, changes, removals, start_us)
