"""Continuous audit worker: compares the tiers of all chats at a limited rate.

Results are written to metrics, the log and Redis. One worker runs per partition, under a lease that
prevents duplicate work. Each worker scans its part of the `directory` table, then the archive
objects of its partition's chats.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import structlog

from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.long_bodies import BodyFiles
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.config import Settings
from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.client import HotClient
from chatserver.operations.audit.chat_audit import Auditor, OnProgress, Tally
from chatserver.operations.audit.hot import AuditResults, DatedFinding, Round
from chatserver.operations.audit.object_audit import ObjectAuditor
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.cost.usage_recorder import record_usage
from chatserver.task_groups import map_concurrently
from chatserver.telemetry import metrics
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.chats.chat_scan import iter_chats
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.paced_client import PacedClient
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.messages.active_days import ActiveDays
from chatserver.warm.messages.long_bodies import LongBodies
from chatserver.warm.messages.sharded_chats import ShardedChats
from workers.partition_workers import run_partitions
from workers.periodic_work import run_periodically

log = structlog.get_logger()

LEASE_S = 60.0
CHATS_AT_ONCE = 16  # chats that a process audits at the same time
CONFIRM_S = 1.0  # An inconsistent range is read again after this time.
ORPHAN_AGE_S = 3600  # Objects younger than this are not checked: their upload may be in progress.


class AuditRunner(msgspec.Struct, frozen=True):
    """Auditors of chats and objects, and the DynamoDB client that they share."""

    settings: Settings
    client: PacedClient
    chats: Auditor
    objects: ObjectAuditor

    async def audit_chat(self, chat: ChatId, tally: Tally, on_progress: OnProgress) -> None:
        """Audit a chat; record errors in `tally.failed`."""
        try:
            await self.chats.audit(chat, tally, on_progress)
        except (Unavailable, ConfigError) as exc:
            tally.failed[chat] = exc.message

    async def audit_objects(self, chat: ChatId, tally: Tally) -> None:
        """Audit the archive objects of a chat; record errors in `tally.failed`."""
        try:
            orphans = await self.objects.find_orphans(chat)
            tally.findings += orphans
        except (Unavailable, ConfigError) as exc:
            tally.failed[f"objects of {chat}"] = exc.message

    async def audit_chats(
        self, audit_chat: Callable[[ChatId], Awaitable[None]], part: int = 0, parts: int = 1
    ) -> None:
        """Call `audit_chat` for each chat in part `part` of `parts` of the `directory` table.

        Guarantees:
            At most `CHATS_AT_ONCE` calls run at the same time.
        """
        async for page in iter_chats(self.client, part, parts):
            await map_concurrently(audit_chat, page, in_flight_max=CHATS_AT_ONCE, name="audit-chat")

    async def audit_all_objects(
        self,
        tally: Tally,
        on_progress: OnProgress,
        is_mine: Callable[[ChatId], bool] = lambda _: True,
    ) -> None:
        """Audit the archive objects of all chats for which `is_mine` is true."""

        async def audit_one(chat: ChatId) -> None:
            await on_progress()
            await self.audit_objects(chat, tally)

        try:
            async for page in self.objects.iter_chats():
                await map_concurrently(
                    audit_one,
                    filter(is_mine, page),
                    in_flight_max=CHATS_AT_ONCE,
                    name="audit-objects",
                )
        except (Unavailable, ConfigError) as exc:
            tally.failed["the list of objects"] = exc.message


def make_audit(
    settings: Settings,
    hot: HotClient,
    client: DynamoClient,
    store: ObjectStore,
    clock: Clock,
    read_units_per_s: int | None,
) -> AuditRunner:
    """Build the auditors. All their DynamoDB reads share one rate limit."""
    paced = PacedClient(client, RateLimiter(read_units_per_s, clock))
    manifests = Manifests(paced)
    shards = ShardedChats(paced, clock)
    bodies = LongBodies(paced, settings.warm, BodyFiles(store, client.cipher), clock, shards)
    archivable = ArchivableEntries(paced, clock, shards, bodies)
    # A cache of one byte holds no object, so every object is read from the bucket.
    archive = settings.archive.model_copy(update={"cache_bytes_max": 1})
    objects = SegmentObjects(store, archive, client.cipher)
    return AuditRunner(
        settings,
        paced,
        Auditor(
            log=ChatLog(hot),
            find_backlog=lambda chat: Backlog(hot, hot.keys.get_partition(chat)),
            archivable=archivable,
            manifests=manifests,
            days=ActiveDays(paced, settings.warm),
            objects=objects,
            confirm_s=CONFIRM_S,
        ),
        ObjectAuditor(
            store=store,
            manifests=manifests,
            age_s=ORPHAN_AGE_S,
            confirm_s=CONFIRM_S,
            clock=clock,
        ),
    )


class AuditWorker:
    """Audits the chats of one partition repeatedly."""

    def __init__(
        self, *, container: StorageContainer, audit: AuditRunner, partition: int, owner: str
    ) -> None:
        self._container = container
        self._audit = audit
        self._settings = container.settings.audit
        self._partition = partition
        self._results = AuditResults(container.hot)
        self._lease = container.make_lease("audit", owner, LEASE_S, partition)

    async def run(self) -> None:
        """Audit repeatedly until cancelled.

        Raises:
            Unavailable: Redis is unavailable; restart the worker.
        """
        await run_periodically(self._lease, self._settings.interval_s, self.run_round)

    async def run_round(self) -> Tally:
        """Audit all chats of the partition once, and report the findings.

        Raises:
            Unavailable: DynamoDB does not respond, or the lease is lost.
        """
        keys = self._container.hot.keys
        tally, began_ms, findings_count = Tally(), int(self._container.clock.time() * 1000), 0

        async def audit_chat(chat: ChatId) -> None:
            nonlocal findings_count
            await self._renew_lease()
            await self._audit.audit_chat(chat, tally, self._renew_lease)
            count = await self._report(tally)
            findings_count += count

        await self._audit.audit_chats(audit_chat, self._partition, keys.partitions)
        await self._audit.audit_all_objects(
            tally, self._renew_lease, lambda chat: keys.get_partition(chat) == self._partition
        )
        findings_count += await self._report(tally)
        metrics.AUDIT_FAILED.inc(len(tally.failed))
        for chat_name, reason in tally.failed.items():
            log.warning("audit.failed", what=chat_name, error=reason)
        if not tally.failed:
            metrics.AUDIT_ROUND.labels(str(self._partition)).set(self._container.clock.time())
        ended_ms = int(self._container.clock.time() * 1000)
        await self._results.put_round(
            Round(
                partition=self._partition,
                began_ms=began_ms,
                ended_ms=ended_ms,
                chats=tally.chats,
                entries=tally.entries,
                unverified=tally.unverified,
                failed=len(tally.failed),
                findings=findings_count,
            )
        )
        log.info(
            "audit.round_finished",
            partition=self._partition,
            chats=tally.chats,
            entries=tally.entries,
            unverified=tally.unverified,
            shredded=tally.shredded,
            failed=len(tally.failed),
        )
        return tally

    async def _report(self, tally: Tally) -> int:
        findings, tally.findings = tally.findings, []
        for finding in findings:
            metrics.AUDIT_FINDINGS[finding.category].inc(finding.count)
            log.error("audit.inconsistency_found", **msgspec.structs.asdict(finding))
        at_ms = int(self._container.clock.time() * 1000)
        await self._results.add_findings(
            [DatedFinding(at_ms, **msgspec.structs.asdict(finding)) for finding in findings]
        )
        return len(findings)

    async def _renew_lease(self) -> None:
        if not await self._lease.hold():
            raise Unavailable("audit: another worker holds the lease")


@contextlib.asynccontextmanager
async def open_audit(
    settings: Settings, hot: HotClient, clock: Clock, read_units_per_s: int | None
) -> AsyncIterator[AuditRunner]:
    async with (
        open_dynamodb(settings.warm) as dynamodb,
        record_usage(dynamodb.meter.usage, UsageTotals(hot), clock),
        open_s3(settings.cold) as store,
    ):
        yield make_audit(
            settings=settings,
            hot=hot,
            client=dynamodb.for_feature("audit"),
            store=store,
            clock=clock,
            read_units_per_s=read_units_per_s,
        )


async def run_audit(container: StorageContainer, owner: str) -> None:
    """Audit all partitions whose lease is free, until cancelled.

    Raises:
        Unavailable: all of Redis is unavailable; restart the worker.
    """
    rate = container.settings.audit.read_units_per_s
    async with open_audit(container.settings, container.hot, container.clock, rate) as audit:

        async def work(partition: int) -> None:
            await AuditWorker(
                container=container, audit=audit, partition=partition, owner=owner
            ).run()

        await run_partitions(container.hot, "audit", work)
