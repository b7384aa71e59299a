"""Storage dependencies of the API and the workers: DynamoDB and S3 repositories."""

from __future__ import annotations

import abc
import dataclasses
from functools import cached_property
from typing import Literal

from chatserver.cold.client import ObjectStore
from chatserver.cold.long_bodies import BodyFiles
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.config import Settings
from chatserver.container import storage_feature_ports
from chatserver.container.core import CoreContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId, new_id
from chatserver.hot.redis.client import HotClient
from chatserver.hot.worker_leases import Lease
from chatserver.operations.doctor.dynamodb_checks import require_tables
from chatserver.outbound.http_client import HttpClient
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRanges
from chatserver.warm.archive.user_archive_positions import UserArchivePositions
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.chats.logins import Logins
from chatserver.warm.chats.member_states import MemberStates
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.chats.moderation import Moderation as ModerationRows
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.messages.active_days import ActiveDays
from chatserver.warm.messages.long_bodies import LongBodies
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import Messages
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.messages.ttl import ItemRetention

Role = Literal["api", "worker"]


@dataclasses.dataclass(frozen=True, slots=True)
class Connections:
    """The open clients of an API or worker process."""

    hot: HotClient
    dynamodb: DynamoClient
    store: ObjectStore
    outbound: HttpClient


class TierContainer(CoreContainer, abc.ABC):
    """DynamoDB and S3 repositories, and readers that combine the tiers."""

    def __init__(
        self, *, role: Role, settings: Settings, clock: Clock, connections: Connections
    ) -> None:
        # Like a gateway, the API needs a unique id for its commits.
        gateway = GatewayId(new_id().lower() if role == "api" else "-")
        super().__init__(settings=settings, clock=clock, hot=connections.hot, gateway=gateway)
        self.role = role
        self.dynamodb = dynamodb = connections.dynamodb
        self.store = store = connections.store
        self.outbound = connections.outbound
        directory = dynamodb.for_feature("directory")
        self.directory = Directory(directory)
        self.member_state = MemberStates(directory, self.directory)
        self.memberships = Memberships(dynamodb.for_feature("membership"))
        self.login_rows = Logins(dynamodb.for_feature("accounts"))
        self.holds = Holds(dynamodb.for_feature("moderation"))
        self.moderation_rows = ModerationRows(dynamodb.for_feature("moderation"))
        self.body_files = BodyFiles(store, dynamodb.cipher)
        self.item_retention = ItemRetention.by(settings.archive)
        self.manifests = Manifests(dynamodb.for_feature("archive"))
        self.restored = RestoredRanges(dynamodb.for_feature("archive"))
        self.segments = SegmentObjects(store, settings.archive, dynamodb.cipher)

    async def check_tables(self) -> None:
        """Check that the tables exist and are readable; see `require_tables`."""
        await require_tables(self.dynamodb.for_feature("operations"), self.settings.warm)

    def make_lease(self, work: str, owner: str, ttl_s: float, partition: int = 0) -> Lease:
        """Return a lease that has not been acquired. Work without partitions uses partition 0."""
        return Lease(
            hot=self.hot,
            partition=partition,
            work=work,
            owner=owner,
            ttl_s=ttl_s,
            clock=self.clock,
        )

    @property
    def warm_history(self) -> WarmAndColdLog:
        return self.older_tiers

    @property
    def earlier_periods(self) -> Memberships:
        return self.memberships

    @cached_property
    def write_shards(self) -> ShardedChats:
        usage = self.dynamodb.for_feature("patterns" if self.role == "api" else "persist")
        return ShardedChats(usage, self.clock)

    @cached_property
    def long_bodies(self) -> LongBodies:
        usage = self.dynamodb.for_feature("history" if self.role == "api" else "persist")
        return LongBodies(usage, self.settings.warm, self.body_files, self.clock, self.write_shards)

    @cached_property
    def messages(self) -> Messages:
        return Messages(
            self.dynamodb.for_feature("persist"),
            self.clock,
            self.write_shards,
            self.item_retention,
            self.long_bodies,
        )

    @cached_property
    def archivable(self) -> ArchivableEntries:
        return self._make_archivable(self.dynamodb.for_feature("archive"))

    def _make_archivable(self, client: DynamoClient) -> ArchivableEntries:
        return ArchivableEntries(client, self.clock, self.write_shards, self.long_bodies)

    @cached_property
    def cold_log(self) -> ColdLog:
        reads = self.dynamodb.for_feature("history")
        return ColdLog(
            manifests=Manifests(reads),
            segments=self.segments,
            items=self._make_archivable(reads),
            clock=self.clock,
        )

    @cached_property
    def older_tiers(self) -> WarmAndColdLog:
        messages = Messages(
            self.dynamodb.for_feature("history"),
            shards=self.write_shards,
            bodies=self.long_bodies,
        )
        return WarmAndColdLog(messages, self.cold_log)

    @cached_property
    def user_positions(self) -> UserArchivePositions:
        usage = self.dynamodb.for_feature("patterns" if self.role == "api" else "archive")
        return UserArchivePositions(usage)

    @cached_property
    def active_days(self) -> ActiveDays:
        usage = self.dynamodb.for_feature("patterns" if self.role == "api" else "persist")
        return ActiveDays(usage, self.settings.warm)

    @cached_property
    def message_indexes(self) -> MessageIndexes:
        return MessageIndexes(
            self.dynamodb.for_feature("patterns"),
            self.clock,
            self.write_shards,
            self.long_bodies,
        )

    @cached_property
    def message_changes(self) -> MessageChanges:
        return MessageChanges(
            client=self.dynamodb.for_feature("persist"),
            release=self.release_files,
            archived=self.cold_log,
            holds=self.holds,
            shards=self.write_shards,
            retention=self.item_retention,
            clock=self.clock,
            bodies=self.long_bodies,
            release_pin=self.release_pin,
        )

    @cached_property
    def release_pin(self) -> storage_feature_ports.ReleasePin:
        return self.get_port(storage_feature_ports.RELEASE_PIN)

    @cached_property
    def release_files(self) -> storage_feature_ports.ReleaseFiles:
        return self.get_port(storage_feature_ports.RELEASE_FILES)
