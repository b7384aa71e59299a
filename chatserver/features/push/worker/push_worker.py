"""Push worker: notifies members without a client in the foreground. See docs/push.md.

::

    backlog ─► chats with new messages ─► {pN}:due, after `notify.delay_s` ─► `push_dispatcher`
             (separate reader with the position `told`)

Sending a message involves no push work. This worker has its own position in the backlog and
groups the entries by chat, so a thousand messages in one chat are one unit of work. Entries stay in
the backlog until this worker has read them, for at most a minute after they are persisted.

Crash-safe: one script advances `told` and schedules the chats, and the claim on a chat expires
unless `finish` is called. Each push is claimed in Redis before it is sent, so a crash can lose a
push but never send it twice. Design: decision 0020.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

import structlog

from chatserver.config import Settings
from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import ChatError, CorruptData, NotFound
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import DueChats, DuePush
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers.registry import check_providers, open_providers
from chatserver.features.push.settings import Notify
from chatserver.features.push.worker.push_dispatcher import FRESH_S, PushDispatcher, PushProgress
from chatserver.features.push.worker.push_sender import PushSender
from chatserver.hot.bus.stream_waiter import StreamWaiter
from chatserver.hot.chats.persist_backlog import Backlog, BacklogEntry, CommitEntry
from chatserver.telemetry.failpoints import failpoint
from workers.partition_workers import run_partitions

log = structlog.get_logger()

POLL_MS = 500
IDLE_MS = 3000  # poll interval if no chat is scheduled; shorter than `LEASE_S`

LEASE_S = 6.0
READ_MAX = 100  # maximum backlog entries per read; each has up to redis.batch_max messages
CHATS_AT_ONCE = 200
CHAT_S_MAX = 30.0
CLAIM_S = 45.0  # duration of a claim; longer than `CHAT_S_MAX`
STOP_S = 3.0
LATE_S = 5.0  # a push that is sent later than this is checked again before
_CHAT_AT = len(b'"chat":"')  # position of the chat id in a message's tail (its JSON from `chat` on)


class PushWorker:
    """Push worker for one partition."""

    def __init__(
        self, *, container: StorageContainer, dispatcher: PushDispatcher, partition: int, owner: str
    ) -> None:
        self._container = container
        self._settings = container.settings.get(Notify)
        self._dispatcher = dispatcher
        self._lease = container.make_lease("notify", owner, LEASE_S, partition)
        self._chats = DueChats(container.hot, self._lease)
        self._backlog = Backlog(container.hot, partition)
        self._entries = StreamWaiter(container.hot, container.hot.keys.backlog(partition))
        self._dispatches: set[asyncio.Task[None]] = set()
        self._recorded_at = -math.inf

    async def run(self) -> None:
        """Read the backlog and dispatch pushes until cancelled; release the lease on exit.

        Raises:
            Unavailable: Redis is unavailable; restart the worker.
        """
        hot, epoch = self._container.hot, ""
        async with self._lease.release_on_exit():
            try:
                while True:
                    if (current := hot.get_epoch(self._lease.partition)) != epoch:
                        # Redis has lost the lease and the position. Restore both immediately:
                        # until then, the backlog is trimmed without waiting for this worker.
                        epoch, self._recorded_at = current, -math.inf
                        self._lease.mark_lost()
                    if await self._lease.hold():
                        position = await self.read_backlog()
                        await self.dispatch_due()
                        if not await self._chats.has_any():
                            await self._entries.wait_after(position, IDLE_MS)
                    await sleep_aligned(POLL_MS / 1000)
            finally:
                for task in list(self._dispatches):
                    task.cancel()
                await self._entries.close()

    async def read_backlog(self) -> str:
        """Schedule the chats with new messages; return the id of the last backlog entry read."""
        hot, position = self._container.hot, await self._chats.get_checkpoint()
        while True:
            entries = await self._backlog.list_after(position, READ_MAX)
            now = self._container.clock.monotonic()
            # Report the position even without new entries: after a minute without a report, the
            # backlog is trimmed without waiting for this worker.
            if not entries and now - self._recorded_at < LEASE_S:
                return position
            position = entries[-1].id if entries else position
            # Use the Redis clock, which assigns the message times.
            now_ms = (
                await hot.get_time_ms(hot.keys.backlog(self._lease.partition)) if entries else 0
            )
            first_seqs = self._find_first_seqs(entries, now_ms)
            if not await self._chats.schedule(position, first_seqs, self._settings.delay_s):
                return position
            self._recorded_at = now
            if entries:
                failpoint("notify.after_record")
            if len(entries) < READ_MAX or not await self._lease.hold():
                return position

    def _find_first_seqs(self, entries: list[BacklogEntry], now_ms: int) -> dict[ChatId, Seq]:
        """Return, for each chat, the seq of its first message that is not older than `FRESH_S`."""
        oldest = (now_ms - FRESH_S * 1000) * 1000
        first_seqs: dict[bytes, Seq] = {}
        for entry in entries:
            if not isinstance(entry, CommitEntry):
                continue
            for message in entry.messages:
                if message.target_ts == 0 and message.ts > oldest:
                    tail = message.tail
                    chat = tail[_CHAT_AT : tail.find(b'"', _CHAT_AT)]
                    first_seqs.setdefault(chat, message.seq)
        return {ChatId(chat.decode()): seq for chat, seq in first_seqs.items()}

    async def dispatch_due(self) -> None:
        """Start to send the pushes that are due, in up to `CHATS_AT_ONCE` chats at a time."""
        room = CHATS_AT_ONCE - len(self._dispatches)
        if room <= 0:
            return
        for due in await self._chats.claim_due(room, CLAIM_S):
            task = asyncio.create_task(self._dispatch(due), name=f"push-{due.chat}")
            self._dispatches.add(task)
            task.add_done_callback(self._dispatches.discard)

    async def _dispatch(self, due: DuePush) -> None:
        try:
            async with asyncio.timeout(CHAT_S_MAX):
                progress = await self._dispatcher.dispatch(due)
        except (NotFound, CorruptData) as exc:
            log.warning("notify.chat_skipped", chat=due.chat, error=exc.message)
            progress = PushProgress(Seq(2**53))
        except (ChatError, TimeoutError) as exc:
            log.warning("notify.failed", chat=due.chat, error=str(exc) or "timed out")
            return  # the claim expires, and the chat is dispatched again
        with contextlib.suppress(ChatError):
            await self._chats.finish(due, progress.next_seq, progress.recheck_after_s)


def check_settings(settings: Settings) -> None:
    """Check the push settings. Raises ConfigError."""
    check_providers(settings.get(Notify))


async def run_notify(container: StorageContainer, owner: str) -> None:
    """Dispatch pushes for all partitions until cancelled. Does nothing without a push provider.

    Raises:
        ConfigError: a key of a push provider is invalid.
        Unavailable: all of Redis is unavailable; restart the worker.
    """
    push_state = container.get(PushContainer).state
    subscriptions = container.get(PushContainer).subscriptions

    async def claim(subscription: Subscription, notice: Notice, is_retry: bool) -> bool:
        is_late = is_retry or container.clock.time() - notice.ts / 1e6 > LATE_S
        if is_late and not await dispatcher.is_current(subscription.user, notice):
            return False
        return await push_state.claim(
            subscription.user,
            subscription.id,
            notice.chat,
            (notice.seq, notice.ts),
            is_retry=is_retry,
        )

    async def remove_subscription(subscription: Subscription, until_ms: int) -> None:
        try:
            await subscriptions.remove(subscription.user, subscription.id, until_ms=until_ms)
        except ChatError as exc:
            log.info("notify.delete_failed", subscription=subscription.id, error=exc.message)

    async with open_providers(container.settings, container.clock) as providers:
        if not providers:
            log.info("notify.disabled")
            await asyncio.Event().wait()
        sender = PushSender(
            providers=providers,
            clock=container.clock,
            claim=claim,
            remove=remove_subscription,
        )
        dispatcher = PushDispatcher(container, sender)

        async def notify(partition: int) -> None:
            await PushWorker(
                container=container, dispatcher=dispatcher, partition=partition, owner=owner
            ).run()

        try:
            await run_partitions(container.hot, "notify", notify)
        finally:
            await sender.close(STOP_S)
