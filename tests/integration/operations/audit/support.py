"""Support of the audit tests: an audit without delays, and injected faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from chatserver.cold.segment_format import encode_segment
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.ids import new_id
from chatserver.operations.audit.chat_audit import Tally
from chatserver.operations.audit.worker import AuditRunner, make_audit
from chatserver.protocol.frames import Message
from chatserver.warm.archive import manifests
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES
from tests.integration.workers.archive.support import World
from tests.support.constants import constants

NOW_TS = 4_000_000_000_000_000  # timestamp of messages that are too new for the archive


async def on_progress() -> None:
    """Ignore progress."""


def audit_of(world: World, *, orphan_age_s: int = 0, confirm_s: float = 0.0) -> AuditRunner:
    """Return an audit that checks objects of any age, and confirms findings after `confirm_s`."""
    container = world.container
    with constants(
        {
            "chatserver.operations.audit.worker.CONFIRM_S": confirm_s,
            "chatserver.operations.audit.worker.ORPHAN_AGE_S": orphan_age_s,
        }
    ):
        return make_audit(
            container.settings, container.hot, world.client, world.store, container.clock, None
        )


async def audited(world: World, **settings: Any) -> Tally:
    tally = Tally()
    audit = audit_of(world, **settings)
    await audit.audit_chat(world.chat, tally, on_progress)
    await audit.audit_objects(world.chat, tally)
    assert not tally.failed
    return tally


def summary(tally: Tally) -> list[tuple[str, int, int]]:
    """Return the findings as (kind, first seq, last seq)."""
    return [(each.kind, each.first, each.last) for each in tally.findings]


@dataclasses.dataclass
class FaultInjector:
    """Makes the tiers of a chat inconsistent."""

    world: World

    @property
    def _messages(self) -> str:
        return MESSAGES.name_in(self.world.container.settings.warm)

    @property
    def _directory(self) -> str:
        return DIRECTORY.name_in(self.world.container.settings.warm)

    def _key(self, entry: Message) -> dict[str, Any]:
        return {"chatid": {"S": entry.chat}, "ts": {"N": str(entry.ts)}}

    async def delete_items(self, *entries: Message) -> None:
        for entry in entries:
            request = {"TableName": self._messages, "Key": self._key(entry)}
            await self.world.client.call("delete_item", request)

    async def set_attribute(self, entry: Message, name: str, value: Any) -> None:
        """Set an attribute of an item; None removes it."""
        request = {
            "TableName": self._messages,
            "Key": self._key(entry),
            "UpdateExpression": "REMOVE #n" if value is None else "SET #n = :v",
            "ExpressionAttributeNames": {"#n": name},
        }
        if value is not None:
            request["ExpressionAttributeValues"] = {":v": value}
        await self.world.client.call("update_item", request)

    async def delete_object(self, number: int) -> None:
        segment = (await self.world.segments())[number]
        await self.world.store.call("delete_object", Key=segment.key)

    async def change_object(self, number: int, change: Callable[[bytes], bytes]) -> None:
        segment = (await self.world.segments())[number]
        data = await self.world.store.read(segment.key, size_max=1 << 24)
        await self.world.store.call("put_object", Key=segment.key, Body=change(data))

    async def delete_row(self, number: int) -> None:
        segment = (await self.world.segments())[number]
        key = {
            "PK": {"S": f"a#{segment.chat}"},
            "SK": {"S": f"s#{segment.last:020d}#{segment.chat}"},
        }
        await self.world.client.call("delete_item", {"TableName": self._directory, "Key": key})

    async def add_segment(self, entries: list[Message], *, with_row: bool = True) -> ArchiveSegment:
        """Write an unexpected object, with or without a row."""
        segment, data = encode_segment(entries, new_id().lower())
        await self.world.store.call("put_object", Key=segment.key, Body=data)
        if with_row:
            item = manifests.SEGMENT.encode(segment)
            await self.world.client.call("put_item", {"TableName": self._directory, "Item": item})
        return segment
