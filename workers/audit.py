"""Compares the tiers of all chats, round after round, at a set pace; tells by metrics and the log.

One worker for each partition: it has a lease, which saves work and nothing else, as all of this
only reads. Its part of the directory is a part of the table; what the bucket has is gone through by
the partition of the chats that the objects are of.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

import structlog

from chatserver.cold.archive import SegmentObjects
from chatserver.cold.bodies import BodyFiles
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.audits import AuditNotes, Found, Round
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.client import HotClient
from chatserver.hot.leases import Lease
from chatserver.hot.spending import Spendings
from chatserver.service.accounting import keep_account
from chatserver.telemetry import metrics
from chatserver.warm.aged import AgedMessages
from chatserver.warm.allchats import iter_chats
from chatserver.warm.bodies import LongBodies
from chatserver.warm.client import DynamoClient, open_dynamodb
from chatserver.warm.manifests import Manifests
from chatserver.warm.migrations.pace import Pace
from chatserver.warm.paced import PacedClient
from chatserver.warm.shardlist import ShardList
from workers.auditobjects import ObjectAuditor
from workers.auditor import Auditor, Tally, Told
from workers.partitions import run_partitions
from workers.parts import WorkerParts
from workers.rounds import make_rounds

log = structlog.get_logger()


@dataclasses.dataclass(frozen=True, slots=True)
class Audit:
    """What looks at chats, and what it spends."""

    settings: Settings
    client: PacedClient
    chats: Auditor
    objects: ObjectAuditor

    async def look_at(self, chat: ChatId, tally: Tally, told: Told) -> None:
        """Look at the tiers of a chat; `told` is called on the way. An unreadable one is noted."""
        try:
            await self.chats.audit(chat, tally, told)
        except (Unavailable, ConfigError) as exc:
            tally.failed[chat] = exc.message

    async def look_at_objects(self, chat: ChatId, tally: Tally) -> None:
        """Look at the objects of a chat."""
        try:
            tally.findings += await self.objects.find_orphans(chat)
        except (Unavailable, ConfigError) as exc:
            tally.failed[f"objects of {chat}"] = exc.message

    async def iter_all(self, part: int = 0, parts: int = 1) -> AsyncIterator[ChatId]:
        """Yield the chats of a part of the directory."""
        async for page in iter_chats(self.client, self.settings.warm, part, parts):
            for chat in page:
                yield chat

    async def look_at_all_objects(
        self, tally: Tally, told: Told, is_mine: Callable[[ChatId], bool] = lambda _: True
    ) -> None:
        """Look at the objects of all chats that have any in the bucket, known ones or not."""
        try:
            async for page in self.objects.iter_chats():
                for chat in filter(is_mine, page):
                    await told()
                    await self.look_at_objects(chat, tally)
        except (Unavailable, ConfigError) as exc:
            tally.failed["the list of objects"] = exc.message


def make_audit(
    settings: Settings,
    hot: HotClient,
    client: DynamoClient,
    store: ObjectStore,
    clock: Clock,
    read_units_per_s: int | None,
) -> Audit:
    """Put the parts together; all that they read of DynamoDB shares one pace."""
    paced = PacedClient(client, Pace(read_units_per_s, clock))
    manifests = Manifests(paced, settings.warm)
    shards = ShardList(paced, settings.warm, clock)
    bodies = LongBodies(paced, settings.warm, BodyFiles(store), clock, shards)
    aged = AgedMessages(paced, settings.warm, clock, shards, bodies)
    # Of a cache of one byte nothing is found: each object is read from the bucket.
    objects = SegmentObjects(store, settings.archive.model_copy(update={"cache_bytes_max": 1}))
    audit = settings.audit
    return Audit(
        settings,
        paced,
        Auditor(ChatLog(hot), aged, manifests, objects, audit.confirm_s),
        ObjectAuditor(store, manifests, audit.orphan_age_s, audit.confirm_s, clock),
    )


class AuditWorker:
    """The auditor of one partition."""

    def __init__(self, parts: WorkerParts, audit: Audit, partition: int, owner: str) -> None:
        self._parts = parts
        self._audit = audit
        self._settings = parts.settings.audit
        self._partition = partition
        self._notes = AuditNotes(parts.hot)
        self._lease = Lease(
            parts.hot, partition, "audit", owner, self._settings.lease_s, parts.clock
        )

    async def run(self) -> None:
        """Go round until cancelled.

        Raises:
            Unavailable: Redis went away; start again.
        """
        await make_rounds(self._lease, self._settings.interval_s, self.go_round)

    async def go_round(self) -> Tally:
        """Look at all chats of the part once, and tell what was found.

        Raises:
            Unavailable: the directory cannot be read, or the lease is lost.
        """
        keys = self._parts.hot.keys
        whole, began_ms, found = Tally(), int(self._parts.clock.time() * 1000), 0
        async for chat in self._audit.iter_all(self._partition, keys.partitions):
            await self._keep_lease()
            await self._audit.look_at(chat, whole, self._keep_lease)
            found += await self._tell(whole)
        await self._audit.look_at_all_objects(
            whole, self._keep_lease, lambda chat: keys.partition_of(chat) == self._partition
        )
        found += await self._tell(whole)
        metrics.AUDIT_FAILED.inc(len(whole.failed))
        for what, why in whole.failed.items():
            log.warning("audit.failed", what=what, error=why)
        if not whole.failed:
            metrics.AUDIT_ROUND.labels(str(self._partition)).set(self._parts.clock.time())
        ended_ms = int(self._parts.clock.time() * 1000)
        await self._notes.put_round(
            Round(
                self._partition,
                began_ms,
                ended_ms,
                whole.chats,
                whole.entries,
                whole.unverified,
                len(whole.failed),
                found,
            )
        )
        log.info(
            "audit.round",
            partition=self._partition,
            chats=whole.chats,
            entries=whole.entries,
            unverified=whole.unverified,
            failed=len(whole.failed),
        )
        return whole

    async def _tell(self, tally: Tally) -> int:
        """Count what was found, log it with what is to be done, note it, and forget it."""
        found, tally.findings = tally.findings, []
        for each in found:
            metrics.AUDIT_FINDINGS[each.category].inc(each.count)
            log.error(
                "audit.finding",
                kind=each.kind,
                chat=each.chat,
                first=each.first,
                last=each.last,
                where=each.where,
                todo=each.advice,
            )
        at_ms = int(self._parts.clock.time() * 1000)
        await self._notes.add_findings(
            [Found(at_ms, one.kind, one.chat, one.first, one.last, one.where) for one in found]
        )
        return len(found)

    async def _keep_lease(self) -> None:
        if not await self._lease.hold():
            raise Unavailable("audit: another worker has the lease")


@contextlib.asynccontextmanager
async def open_audit(
    settings: Settings, hot: HotClient, clock: Clock, read_units_per_s: int | None
) -> AsyncIterator[Audit]:
    """Connect to DynamoDB and S3, apart from whatever else the process does."""
    async with (
        open_dynamodb(settings.warm) as dynamodb,
        keep_account(dynamodb.meter.purse, Spendings(hot), clock),
        open_s3(settings.cold) as store,
    ):
        yield make_audit(
            settings, hot, dynamodb.for_feature("audit"), store, clock, read_units_per_s
        )


async def run_audit(parts: WorkerParts, owner: str) -> None:
    """Audit the chats of every partition that is free, until cancelled.

    Raises:
        Unavailable: Redis went away as a whole; start again.
    """
    rate = parts.settings.audit.read_units_per_s
    async with open_audit(parts.settings, parts.hot, parts.clock, rate) as audit:

        async def work(partition: int) -> None:
            await AuditWorker(parts, audit, partition, owner).run()

        await run_partitions(parts.hot, "audit", work)
