"""Repair worker: completes message deliveries that a gateway did not complete.

A commit adds the chat to ``{pN}:undelivered``. The process that completes the delivery to every
inbox and gateway removes the chat from this list. If a chat stays listed for longer than
`REPAIR_AFTER_MS`, this worker appends the entries to every inbox and notifies every gateway with a
member. Repeating these steps does no harm.

The worker also completes membership changes that dead processes left incomplete
(`chatserver.service.membership.group_membership`), and evicts idle chats from the hot tier, a few
per pass, more while Redis is short of memory (`chatserver.hot.chats.eviction`).
"""

from __future__ import annotations

import asyncio

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.domain.ids import ChatId, GatewayId, Seq
from chatserver.domain.inboxes import Delivery
from chatserver.errors import ChatError, NotFound
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.service.messaging.direct_chats import list_with_first_message
from chatserver.telemetry import metrics
from workers.partition_workers import run_partitions

log = structlog.get_logger()

REPAIR_AFTER_MS = 1000  # a delivery that takes longer is completed by this worker
INTERVAL_MS = 500
EVICTION_INTERVAL_S = 5.0  # pause after a call of `evict_once` that evicted no chat
PRESSURE_CALLS_MAX = 20  # calls of `evict_once` per pass while Redis is short of memory

CHATS_MAX = 200  # maximum chats per read of the list of chats with pending deliveries
READS_MAX = 50  # maximum reads of the pending deliveries per call of `repair_once`
CHATS_AT_ONCE = 16
CHAT_S_MAX = 2.0  # timeout per chat: a chat that cannot be loaded must not delay others for longer
LEASE_S = 2.0  # if a worker dies, another takes over after this time; both may run at once


class RepairWorker:
    """The repair worker of one partition."""

    def __init__(self, container: StorageContainer, partition: int, owner: str) -> None:
        self._container = container
        self._partition = partition
        self._eviction = Eviction(container.hot)
        self._watchers = LargeChatSubscriptions(container.hot, GatewayId(owner), 1)
        self._devices = RemoteDelivery(container.gateway_stream_writer, GatewayId("-"))
        self._lease = container.make_lease("repair", owner, LEASE_S, partition)
        self._slots = asyncio.Semaphore(CHATS_AT_ONCE)
        self._has_pending = False  # True: a delivery or membership change may soon be overdue
        self._evict_at = 0.0

    async def run(self) -> None:
        """Repair the partition until cancelled. The lease is released on exit.

        Raises:
            Unavailable: Redis is unavailable; restart the worker.
        """
        async with self._lease.release_on_exit():
            while True:
                self._has_pending = False
                # The lease is renewed before each step: with high latency to Redis, all steps
                # together may take longer than the lease.
                for step in (self.repair_once, self.finish_changes, self._evict_if_due):
                    if not await self._lease.hold():
                        self._has_pending = True  # try again soon: the lease holder may have died
                        break
                    await step()
                # A delivery that starts now is not overdue until REPAIR_AFTER_MS have passed.
                wait_ms = INTERVAL_MS if self._has_pending else max(INTERVAL_MS, REPAIR_AFTER_MS)
                await sleep_aligned(wait_ms / 1000)

    async def _evict_if_due(self) -> None:
        now = self._container.clock.monotonic()
        is_under_pressure = self._container.hot.health.is_under_memory_pressure
        if now < self._evict_at and not is_under_pressure:
            return
        for _ in range(PRESSURE_CALLS_MAX if is_under_pressure else 1):
            if not await self.evict_once():
                self._evict_at = now + EVICTION_INTERVAL_S
                break

    async def evict_once(self) -> int:
        """Evict a few idle chats; return the number evicted."""
        evicted = await self._eviction.evict_idle(self._partition, self._container.clock.time())
        metrics.EVICTED.inc(evicted)
        return evicted

    async def repair_once(self) -> int:
        """Complete overdue deliveries; return how many chats were completed.

        Guarantees:
            Idempotent, and safe while a gateway delivers the same entries.
            Progress: chats that cannot be completed now do not block others.
        """
        failed = finished = 0
        for _ in range(READS_MAX):
            # Failed chats stay at the start of the list, so skip them.
            chats = await self._list_overdue(failed)
            outcomes = await asyncio.gather(*(self._try_repair(chat) for chat in chats))
            finished += sum(outcomes)
            failed += len(chats) - sum(outcomes)
            if len(chats) < CHATS_MAX:
                break
        metrics.UNDELIVERED.labels(str(self._partition)).set(failed + finished)
        return finished

    async def _list_overdue(self, start: int) -> list[ChatId]:
        hot = self._container.hot
        listed = hot.keys.undelivered(self._partition)
        # Read the time and the list from the same node, because its clock set the list's scores.
        (seconds, micros), items = await hot.snapshot(
            ("TIME",), ("ZRANGE", listed, start, start + CHATS_MAX - 1, "WITHSCORES")
        )
        self._has_pending |= bool(items)
        before_ms = int(seconds) * 1000 + int(micros) // 1000 - REPAIR_AFTER_MS
        scored = zip(items[::2], items[1::2], strict=True)
        return [ChatId(name.decode()) for name, noted_ms in scored if float(noted_ms) <= before_ms]

    async def _try_repair(self, chat: ChatId) -> bool:
        async with self._slots:
            try:
                async with asyncio.timeout(CHAT_S_MAX):
                    await self._repair(chat)
            except TimeoutError:
                log.warning("repair.failed", chat=chat, error=f"timed out after {CHAT_S_MAX:g} s")
            except ChatError as exc:
                log.warning("repair.failed", chat=chat, error=exc.message)
            else:
                return True
        return False

    async def finish_changes(self) -> int:
        """Complete membership changes that dead processes left incomplete; return how many.

        Guarantees:
            Idempotent, and safe while another process works on the change.
        """
        changes = self._container.hot_membership
        overdue, is_pending = await changes.list_overdue(self._partition)
        self._has_pending |= is_pending
        done = 0
        for chat, note in overdue:
            try:
                is_done = await self._container.membership_propagation.finish(chat)
            except NotFound:
                is_done = True
                log.warning("repair.chat_missing", chat=chat)
            except ChatError as exc:
                log.warning("repair.change_failed", chat=chat, error=exc.message)
                continue
            await changes.end(note, has_unstored=not is_done)
            done += 1
            log.info("repair.change_finished", chat=chat)
        return done

    async def _repair(self, chat: ChatId) -> None:
        try:
            # `audience.done` and `audience.top` are from one atomic read: the entries in between
            # are undelivered.
            audience, notices = await self._container.audiences.get_with_notices(chat)
        except NotFound:
            await self._container.undelivered_chats.finish([(chat, Seq(2**53))])
            return
        if audience.is_in_transition or notices:
            # A membership change was committed, but its process could not deliver it.
            await self._container.membership_propagation.finish(chat)
            return
        if audience.is_large:
            gateways = await self._watchers.list_gateways(chat)
            self._devices.notify_channel_seq(chat, audience.top, gateways)
            await self._record_delivered(chat, audience.top)
            return
        deliveries = [
            Delivery(user, chat, max(after, audience.done), audience.top, audience.epoch)
            for user, after in audience.users.items()
        ]
        await list_with_first_message(self._container.inboxes, audience, self._devices)
        for result in await self._container.inboxes.deliver(deliveries):
            self._devices.notify_seq(result.user, result.seq, result.gateways)
        await self._record_delivered(chat, audience.top)

    async def _record_delivered(self, chat: ChatId, upto: Seq) -> None:
        # Yield to the event loop once, so that the notifications are sent first.
        await asyncio.sleep(0)
        await self._container.undelivered_chats.finish([(chat, upto)])
        metrics.REPAIRED.inc()
        log.info("repair.delivered", chat=chat, upto=upto)


async def run_repair(container: StorageContainer, owner: str) -> None:
    """Repair every partition, until cancelled.

    Raises:
        Unavailable: all of Redis is unavailable; restart the worker.
    """
    await run_partitions(
        container.hot, "repair", lambda partition: RepairWorker(container, partition, owner).run()
    )
