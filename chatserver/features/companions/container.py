"""Dependencies of companions in the API and in workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from chatserver.container import storage_feature_ports
from chatserver.container.storage import StorageContainer
from chatserver.features.companions.hot.pending_responses import PendingResponses
from chatserver.features.companions.service.companions import CompanionCatalog, Companions
from chatserver.features.companions.service.sessions import CompanionSessions
from chatserver.features.companions.service.user_memories import Memories
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.companions.warm.user_memories import MemoryRows
from chatserver.hot.chats.persist_backlog import BacklogEntry


class CompanionContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("companions")
        self.companion_rows = CompanionRows(self._client)
        self.session_rows = SessionRows(self._client)
        self.summaries = Summaries(self._client)
        self.memory_rows = MemoryRows(self._client)
        self.memories = Memories(self.memory_rows, self.companion_rows, core.clock)
        self.companions = Companions(self.companion_rows, core.clock)

    @cached_property
    def catalog(self) -> CompanionCatalog:
        return CompanionCatalog(
            self.companion_rows, self.session_rows, self._core.directory, self._core.clock
        )

    @cached_property
    def sessions(self) -> CompanionSessions:
        return CompanionSessions(
            rows=self.session_rows,
            companions=self.companion_rows,
            catalog=self.catalog,
            chat_creator=self._core.chat_creator,
            hot_membership=self._core.hot_membership,
            propagation=self._core.membership_propagation,
            inboxes=self._core.inboxes,
            delivery=self._core.device_delivery,
            record_ended=PendingResponses(self._core.hot, 0).record_ended,
            clock=self._core.clock,
        )


def revive_session(core: StorageContainer) -> storage_feature_ports.ReviveSession:
    return core.get(CompanionContainer).catalog.create_missing_chat


def record_pending(core: StorageContainer) -> storage_feature_ports.RecordPending:
    queues = [PendingResponses(core.hot, number) for number in range(core.hot.keys.partitions)]

    async def record(partition: int, entries: Sequence[BacklogEntry]) -> None:
        await queues[partition].record(entries, is_whole=False)

    return record
