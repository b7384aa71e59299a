"""Dependencies of pinned messages."""

from __future__ import annotations

from functools import cached_property

from chatserver.container import storage_feature_ports
from chatserver.container.storage import StorageContainer
from chatserver.features.pins.model import Pin
from chatserver.features.pins.service import Pins
from chatserver.features.pins.warm import PinRows


class PinContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        client = core.dynamodb.for_feature("pins")
        self.rows = PinRows(client, core.write_shards)

    @cached_property
    def pins(self) -> Pins:
        return Pins(
            rows=self.rows,
            memberships=self._core.memberships,
            audiences=self._core.audiences,
            members=self._core.members,
            history=self._core.history,
            views=self._core.views,
            message_changes=self._core.message_change_service,
            stored_waits=self._core.stored_waits,
            clock=self._core.clock,
            page_bytes_max=self._core.settings.chats.page_bounds.bytes_max,
        )


def release_pin(core: StorageContainer) -> storage_feature_ports.ReleasePin:
    async def release(chat: str, seq: int, ts: int) -> None:
        await core.get(PinContainer).rows.remove(chat, Pin(seq, ts, 0), None)

    return release
