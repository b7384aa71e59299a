"""Dependencies of the archive worker."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.warm.messages.removed_messages import RemovedMessages
from chatserver.warm.streams.checkpoints import StreamCheckpoints
from workers.archive import LEASE_S
from workers.archive.archiver import Archiver
from workers.archive.ttl_removal_checks import TtlRemovalClassifier, TtlRemovalHandler


class ArchiveContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("archive")
        self.stream_rows = StreamCheckpoints(self._client, LEASE_S)

    @cached_property
    def archiver(self) -> Archiver:
        core = self._core
        return Archiver(
            manifests=core.manifests,
            objects=core.segments,
            archivable=core.archivable,
            settings=core.settings.archive,
            clock=core.clock,
            restored=core.restored,
            users=core.user_positions,
        )

    @cached_property
    def removals(self) -> TtlRemovalHandler:
        core = self._core
        return TtlRemovalHandler(
            classifier=TtlRemovalClassifier(core.manifests, core.segments, core.clock),
            manifests=core.manifests,
            archivable=core.archivable,
            items=RemovedMessages(self._client, core.long_bodies),
            changes=core.message_changes,
            entries=core.older_tiers,
            clock=core.clock,
            settle_s=core.settings.persist.write_timeout_s,
        )
