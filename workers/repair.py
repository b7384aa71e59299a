"""Finishes fan-outs that nobody finished: their gateway died, or could not reach a partition.

The commit lists a chat in ``{pN}:undelivered`` while somebody has still to serve an inbox or to
tell another gateway; whoever does takes it off. What stays for longer than `repair.after_ms` is
done here: every inbox of the chat is served (which changes nothing where it was) and every gateway
with a member is nudged (which changes nothing where the device is up to date).

Changes of membership that a process left half done are finished here, too; see
`chatserver.service.membership`.
Chats that are idle leave the hot tier here, a few at each look; see `chatserver.hot.eviction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.inboxes import Delivery
from chatserver.errors import ChatError, NotFound
from chatserver.hot.eviction import Eviction
from chatserver.hot.leases import Lease
from chatserver.hot.mailbox import Nudge, Publish
from chatserver.hot.watchers import Watchers
from chatserver.service.direct_chats import list_with_first_message
from chatserver.telemetry import metrics
from workers.partitions import run_partitions
from workers.parts import WorkerParts

log = structlog.get_logger()

CHATS_MAX = 200  # read at once
READS_MAX = 50  # per look
CHATS_AT_ONCE = 16
CHAT_S_MAX = 2.0  # a chat that cannot be opened must not hold up others for longer
LEASE_S = 2.0  # after which another one goes on; two at once would do no harm


class RepairWorker:
    """The repairer of one partition."""

    def __init__(self, parts: WorkerParts, partition: int, owner: str) -> None:
        self._parts = parts
        self._settings = parts.settings.repair
        self._partition = partition
        self._eviction = Eviction(parts.hot)
        self._watchers = Watchers(parts.hot, GatewayId(owner), 1)
        self._lease = Lease(parts.hot, partition, "repair", owner, LEASE_S, parts.clock)
        self._slots = asyncio.Semaphore(CHATS_AT_ONCE)

    async def run(self) -> None:
        """Look again and again until cancelled; on the way out the lease is given back.

        Raises:
            Unavailable: Redis went away; start again.
        """
        async with self._lease.given_back():
            while True:
                # Renewed before each step: with a distant Redis, all of them outlast the lease.
                for step in (self.repair_once, self.finish_changes, self.evict_once):
                    if not await self._lease.hold():
                        break
                    await step()
                await asyncio.sleep(self._settings.interval_ms / 1000)

    async def evict_once(self) -> int:
        """Let a few chats go that are idle; return how many went."""
        gone = await self._eviction.evict_idle(self._partition, self._parts.clock.time())
        metrics.EVICTED.inc(gone)
        return gone

    async def repair_once(self) -> int:
        """Finish what is overdue; return how many chats were finished.

        Guarantees:
            Idempotent, and safe beside a gateway that is doing the same.
            Progress: chats that cannot be finished now keep no other one waiting.
        """
        failed = finished = 0
        for _ in range(READS_MAX):
            # Who failed stays on the list, before the next ones.
            chats = await self._list_overdue(failed)
            outcomes = await asyncio.gather(*(self._try(chat) for chat in chats))
            finished += sum(outcomes)
            failed += len(chats) - sum(outcomes)
            if len(chats) < CHATS_MAX:
                break
        metrics.UNDELIVERED.labels(str(self._partition)).set(failed + finished)
        return finished

    async def _list_overdue(self, start: int) -> list[ChatId]:
        hot = self._parts.hot
        listed = hot.keys.undelivered(self._partition)
        # In one, so that the clock is that of the node by which the times were noted.
        (seconds, micros), found = await hot.snapshot(
            ("TIME",), ("ZRANGE", listed, start, start + CHATS_MAX - 1, "WITHSCORES")
        )
        before_ms = int(seconds) * 1000 + int(micros) // 1000 - self._settings.after_ms
        scored = zip(found[::2], found[1::2], strict=True)
        return [ChatId(name.decode()) for name, noted_ms in scored if float(noted_ms) <= before_ms]

    async def _try(self, chat: ChatId) -> bool:
        async with self._slots:
            try:
                async with asyncio.timeout(CHAT_S_MAX):
                    await self._repair(chat)
            except TimeoutError:
                log.warning("repair.failed", chat=chat, error=f"not done in {CHAT_S_MAX:g} s")
            except ChatError as exc:
                log.warning("repair.failed", chat=chat, error=exc.message)
            else:
                return True
        return False

    async def finish_changes(self) -> int:
        """Finish changes of membership whose process died; return how many notes were taken back.

        Guarantees:
            Idempotent, and safe beside a process that is still at it.
        """
        changes = self._parts.hot_membership
        overdue = await changes.list_overdue(self._partition)
        done = 0
        for chat, note in overdue:
            try:
                is_done = await self._parts.turnover.finish(chat)
            except NotFound:
                is_done = True
                log.warning("repair.change_of_no_chat", chat=chat)
            except ChatError as exc:
                log.warning("repair.change_failed", chat=chat, error=exc.message)
                continue
            await changes.end(note)
            if not is_done:
                await changes.note_unstored(chat)
            done += 1
            log.info("repair.change_finished", chat=chat)
        return done

    async def _repair(self, chat: ChatId) -> None:
        try:
            # `top` and `done` are of one moment: what lies between is pending.
            audience = await self._parts.audiences.get_fresh(chat)
        except NotFound:
            await self._parts.settling.settle([(chat, Seq(2**53))])
            return
        if audience.is_turning:
            await self._parts.turnover.finish(chat)
            return
        if audience.is_large:
            for gateway in await self._watchers.list_gateways(chat):
                self._parts.postman.post(gateway, Publish(chat, "", audience.top, b""))
            await self._settle(chat, audience.top)
            return
        deliveries = [
            Delivery(user, chat, max(after, audience.done), audience.top, audience.epoch)
            for user, after in audience.users.items()
        ]
        await list_with_first_message(self._parts.inboxes, audience, self._nudge)
        for place in await self._parts.inboxes.deliver(deliveries):
            self._nudge(place.user, place.seq, place.gateways)
        await self._settle(chat, audience.top)

    async def _settle(self, chat: ChatId, upto: Seq) -> None:
        # Its turn comes after the nudges: they are sent in this tick.
        await asyncio.sleep(0)
        await self._parts.settling.settle([(chat, upto)])
        metrics.REPAIRED.inc()
        log.info("repair.delivered", chat=chat, upto=upto)

    def _nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        for gateway in gateways:
            self._parts.postman.post(gateway, Nudge(user, seq))


async def run_repair(parts: WorkerParts, owner: str) -> None:
    """Repair every partition, until cancelled.

    Raises:
        Unavailable: Redis went away as a whole; start again.
    """

    async def repair(partition: int) -> None:
        await RepairWorker(parts, partition, owner).run()

    await run_partitions(parts.hot, "repair", repair)
