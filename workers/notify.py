"""Tells absent members of new messages by push. See docs/push.md and decision 0020.

::

    backlog ─► which chats have messages ─► {pN}:due, after `notify.delay_s` ─► workers.telling
             (a reader of its own, behind `told`)

The hot path has no part in it: messages are found in the backlog, which is read a second time here,
by chats and not by messages, so a thousand messages of one chat are one thing to look at. What is
persisted stays in the backlog until it was seen here, for a minute at most.

Dies anywhere: `told` moves in the script that lists the chats as due; a chat that was taken comes
up again unless it was ended; and each push is claimed in Redis before it is sent. So a push may be
lost with a process, but is never sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.pushes import Notice, Subscription
from chatserver.errors import ChatError, CorruptData, NotFound
from chatserver.hot.absence import Absence, Due, DueChats
from chatserver.hot.backlog import BacklogEntry, CommitEntry
from chatserver.hot.leases import Lease
from chatserver.push.outlets import Outlets
from chatserver.push.providers import open_providers
from chatserver.telemetry.failpoints import failpoint
from workers.partitions import run_partitions
from workers.parts import WorkerParts
from workers.telling import Progress, Teller

log = structlog.get_logger()

LEASE_S = 6.0
READ_MAX = 100  # entries of the backlog; one is up to redis.batch_max messages
CHATS_AT_ONCE = 200
CHAT_S_MAX = 30.0
HOLD_S = 45.0  # longer than a chat may take: until then nobody else takes it
STOP_S = 3.0
_CHAT_AT = len(b'"chat":"')  # every entry begins so


class NotifyWorker:
    """The notifier of one partition."""

    def __init__(self, parts: WorkerParts, teller: Teller, partition: int, owner: str) -> None:
        self._parts = parts
        self._settings = parts.settings.notify
        self._teller = teller
        self._lease = Lease(parts.hot, partition, "notify", owner, LEASE_S, parts.clock)
        self._chats = DueChats(parts.hot, self._lease)
        self._telling: set[asyncio.Task[None]] = set()
        self._noted_at = 0.0

    async def run(self) -> None:
        """Look and tell until cancelled; on the way out the lease is given back.

        Raises:
            Unavailable: Redis went away; start again.
        """
        async with self._lease.given_back():
            try:
                while True:
                    if await self._lease.hold():
                        await self.look_through()
                        await self.tell_due()
                    await asyncio.sleep(self._settings.poll_ms / 1000)
            finally:
                for task in list(self._telling):
                    task.cancel()

    async def look_through(self) -> None:
        """Find chats with new messages in what was committed since the last look."""
        hot, at = self._parts.hot, await self._chats.get_place()
        while True:
            entries = await self._chats.list_after(at, READ_MAX)
            now = self._parts.clock.monotonic()
            # Said now and then, too, when there is nothing: else nobody waits for this reader.
            if not entries and now - self._noted_at < LEASE_S:
                return
            at = entries[-1].id if entries else at
            # Compared with times of messages, which Redis gave.
            now_ms = await hot.time_ms(hot.keys.backlog(self._lease.partition)) if entries else 0
            firsts = self._firsts_of(entries, now_ms)
            if not await self._chats.note(at, firsts, self._settings.delay_s):
                return
            self._noted_at = now
            if entries:
                failpoint("notify.after_note")
            if len(entries) < READ_MAX or not await self._lease.hold():
                return

    def _firsts_of(self, entries: list[BacklogEntry], now_ms: int) -> dict[ChatId, Seq]:
        """Return the chats that have new entries which may be messages, and the first of each."""
        oldest = (now_ms - self._settings.fresh_s * 1000) * 1000
        firsts: dict[bytes, Seq] = {}
        for entry in entries:
            if not isinstance(entry, CommitEntry):
                continue
            for message in entry.messages:
                if message.target_ts == 0 and message.ts > oldest:
                    tail = message.tail
                    chat = tail[_CHAT_AT : tail.find(b'"', _CHAT_AT)]
                    firsts.setdefault(chat, message.seq)
        return {ChatId(chat.decode()): seq for chat, seq in firsts.items()}

    async def tell_due(self) -> None:
        """Begin with the chats whose time has come, as many as there is room for."""
        room = CHATS_AT_ONCE - len(self._telling)
        if room <= 0:
            return
        for due in await self._chats.take(room, HOLD_S):
            task = asyncio.create_task(self._tell(due), name=f"tell-{due.chat}")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, due: Due) -> None:
        try:
            async with asyncio.timeout(CHAT_S_MAX):
                progress = await self._teller.tell(due)
        except (NotFound, CorruptData) as exc:
            log.warning("notify.chat_skipped", chat=due.chat, error=exc.message)
            progress = Progress(Seq(2**53))
        except (ChatError, TimeoutError) as exc:
            log.warning("notify.failed", chat=due.chat, error=str(exc) or "timed out")
            return  # the chat is due again in `HOLD_S`
        with contextlib.suppress(ChatError):
            await self._chats.end(due, progress.next_seq, progress.again_s)


async def run_notify(parts: WorkerParts, owner: str) -> None:
    """Notify for every partition, until cancelled. Without a push service it does nothing at all.

    Raises:
        ConfigError: a key of a push service is none.
        Unavailable: Redis went away as a whole; start again.
    """
    absence, settings = Absence(parts.hot), parts.settings
    subscriptions = parts.subscriptions

    async def claim(subscription: Subscription, notice: Notice, is_retry: bool) -> bool:
        return await absence.claim(
            subscription.user, subscription.id, notice.chat, notice.seq, is_retry=is_retry
        )

    async def forget(subscription: Subscription, until_ms: int) -> None:
        try:
            await subscriptions.remove(subscription.user, subscription.id, until_ms=until_ms)
        except ChatError as exc:
            log.info("notify.not_removed", subscription=subscription.id, error=exc.message)

    async with open_providers(settings, parts.clock) as providers:
        if not providers:
            log.info("notify.off")
            await asyncio.Event().wait()
        outlets = Outlets(providers, settings.notify, parts.clock, claim, forget)
        teller = Teller(parts, absence, subscriptions, parts.quiet, outlets)

        async def notify(partition: int) -> None:
            await NotifyWorker(parts, teller, partition, owner).run()

        try:
            await run_partitions(parts.hot, "notify", notify)
        finally:
            await outlets.close(STOP_S)
