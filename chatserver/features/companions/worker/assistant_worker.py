"""Assistant worker: responds to messages for AI companions. See docs/companions.md, decision 0033.

::

    backlog ─► pending sessions ({pN}:asked) ─► begin: message to answer ─► `responder` ─► end
      │ this worker, immediately         ▲         │ killed: restarted for the same message
      └ persist worker, before its trim ─┘         └ a tier is down: retried later

The worker that holds a partition's lease handles all companion sessions in it. Responses in
different sessions are created concurrently; responses in one session, one after another. Messages
that arrive during a response are all answered by the next response, which is a reply to the last of
them.

Crash-safe at any point: a session stays pending in Redis until its response has been committed, and
the response's `ref` prevents a second commit. Devices see the response restart with a new id.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ClientError, CorruptData, Unavailable
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.hot.pending_responses import PendingResponses, StartedResponse
from chatserver.features.companions.model import CompanionSession
from chatserver.features.companions.providers.registry import load_sdk, open_models
from chatserver.features.companions.settings import Companions
from chatserver.features.companions.worker.responder import (
    Responder,
    ResponderContext,
    ResponderLeaseLost,
    RetryLater,
)
from chatserver.hot.bus.stream_waiter import StreamWaiter
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from workers.partition_workers import run_partitions

log = structlog.get_logger()

LEASE_S = 10.0

READ_MAX = 100  # maximum backlog entries per read; each holds up to `redis.batch_max` messages
WAIT_MS = 250  # maximum wait for backlog entries while a companion session has pending work
IDLE_MS = 2000  # maximum wait for backlog entries while no session has pending work
UNKNOWN_TRIES_MAX = 8  # maximum retries to find the session item of a chat
RETRY_S = 0.5
RETRY_S_MAX = 30.0
BROKEN_TRIES_MAX = 5  # maximum retries after an unexpected exception
PRELOAD_PAGE = 100
PRELOAD_PAGES_MAX = 20  # SDKs of further companions are loaded on first use


class AssistantWorker:
    """Responds in the companion sessions of one partition."""

    def __init__(self, context: ResponderContext, partition: int, owner: str) -> None:
        self._container = container = context.container
        self._context = context
        self._responses_max = container.settings.get(Companions).responses_max
        self._lease = container.make_lease("assistant", owner, LEASE_S, partition)
        self._pending = PendingResponses(container.hot, partition)
        self._backlog = Backlog(container.hot, partition)
        self._entries = StreamWaiter(container.hot, container.hot.keys.backlog(partition))
        self._tasks: dict[ChatId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Respond until cancelled; release the lease on exit.

        Raises:
            Unavailable: Redis became unavailable; start the worker again.
        """
        async with self._lease.release_on_exit():
            try:
                while True:
                    if not await self._lease.hold():
                        await self._stop_all()
                        await asyncio.sleep(add_jitter(LEASE_S / 5))
                        continue
                    await self._process_partition()
            finally:
                await self._stop_all()
                await self._entries.close()

    async def _stop_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _process_partition(self) -> None:
        checkpoint = await self._pending.get_checkpoint()
        while await self._lease.hold():
            entries = await self._backlog.list_after(checkpoint, READ_MAX)
            if entries:
                await self._pending.record(entries)
                failpoint("assistant.after_record")
                checkpoint = entries[-1].id
            is_pending = await self._start_due()
            if len(entries) < READ_MAX:
                await self._entries.wait_after(checkpoint, WAIT_MS if is_pending else IDLE_MS)

    async def _start_due(self) -> bool:
        """Start pending sessions, unless they wait for a retry; return False if none is pending.

        The number of sessions in progress is limited per process.
        """
        room = self._responses_max - self._context.running_count
        if room <= 0:
            return True
        due, is_pending = await self._pending.list_due(room + len(self._tasks))
        for chat in due:
            if chat not in self._tasks and self._context.running_count < self._responses_max:
                self._context.running_count += 1
                task = asyncio.create_task(self._process_session(chat), name=f"session-{chat}")
                self._tasks[chat] = task
                task.add_done_callback(functools.partial(self._remove_task, chat))
        return is_pending

    def _remove_task(self, chat: ChatId, _: asyncio.Task[None]) -> None:
        self._context.running_count -= 1
        del self._tasks[chat]

    async def _process_session(self, chat: ChatId) -> None:
        try:
            while True:
                started = await self._pending.start(self._lease, chat)
                if started is None or not await self._process_step(started):
                    return
        except ChatError as exc:  # Redis failed; the session stays pending, so it is retried
            log.warning("assistant.failed", chat=chat, error=exc.message)

    async def _process_step(self, started: StartedResponse) -> bool:
        """Answer the message and handle the change in `started`; return whether more is pending."""
        try:
            await self._run_step(started)
        except RetryLater as exc:
            await self._schedule_retry(started, exc.wait_s)
            return False
        except ResponderLeaseLost:
            return False
        except Unavailable as exc:
            log.warning("assistant.rescheduled", chat=started.chat, error=exc.message)
            await self._schedule_retry(
                started, min(RETRY_S * 2 ** min(started.tries, 10), RETRY_S_MAX)
            )
            return False
        except Exception:
            log.exception("assistant.crashed", chat=started.chat)
            if started.tries < BROKEN_TRIES_MAX:
                await self._schedule_retry(started, RETRY_S * 2**started.tries)
                return False
            # Another retry would probably fail, too. Give up; the next message is handled normally.
            await self._report_failure(started)
        return await self._pending.finish(started)

    async def _report_failure(self, started: StartedResponse) -> None:
        """Send the user a failure message, if possible. Raises Unavailable."""
        with contextlib.suppress(ClientError, CorruptData):
            session = await self._context.catalog.find_session_by_chat(started.chat)
            if session is not None and started.seq:
                await self._make_responder(session, started).report_failure()

    def _make_responder(self, session: CompanionSession, started: StartedResponse) -> Responder:
        return Responder(
            context=self._context,
            pending=self._pending,
            session=session,
            started=started,
            is_held=lambda: self._lease.left_s() > 0,
        )

    async def _schedule_retry(self, started: StartedResponse, wait_s: float) -> None:
        metrics.RESPONSES.labels("again").inc()
        hot = self._container.hot
        # The time of the Redis server determines when a retry starts.
        now_ms = await hot.get_time_ms(hot.keys.checkpoint(self._lease.partition))
        due_ms = now_ms + int(add_jitter(wait_s) * 1000)
        await self._pending.schedule_retry(started, due_ms)

    async def _run_step(self, started: StartedResponse) -> None:
        was_dropped = False
        if started.changed:  # does not need the session, which an erasure may have deleted
            was_dropped = await self._context.session_memory.drop_changed(
                started.chat, started.changed
            )
        session = await self._context.catalog.find_session_by_chat(started.chat)
        if session is not None and started.changed:
            await self._context.memory_extractor.drop_changed(session, started.changed)
        if session is None:
            if started.tries < UNKNOWN_TRIES_MAX:
                raise Unavailable("no such session")
            log.warning("assistant.session_missing", chat=started.chat)
            return
        if started.seq:
            await self._make_responder(session, started).run()
        if session.is_active and not (was_dropped and not started.seq):
            return
        persona = await self._context.catalog.find_persona(session)
        if persona is None:
            return
        if session.is_active:
            await self._context.session_memory.rebuild(session, persona)
        else:
            await self._context.memory_extractor.finish(session, persona, started.tries)


async def preload_sdks(container: StorageContainer) -> None:
    """Load the SDK of each provider that a companion uses, in a thread.

    Otherwise the first response would be delayed for seconds. Failures are only logged, because
    each response that uses the provider reports them again.
    """
    companions, providers = container.get(CompanionContainer).companions, set[str]()
    after: CompanionId | None = None
    try:
        for _ in range(PRELOAD_PAGES_MAX):
            page, after = await companions.list_page(after, PRELOAD_PAGE)
            providers.update(companion.provider for companion in page)
            if after is None:
                break
    except ChatError as exc:
        log.warning("assistant.preload_failed", error=exc.message)
    for name in sorted(providers):
        try:
            await asyncio.to_thread(load_sdk, name)
        except ChatError as exc:
            log.warning("assistant.sdk_missing", provider=name, error=exc.message)


async def run_assistant(container: StorageContainer, owner: str) -> None:
    """Respond for all partitions until cancelled.

    Raises:
        Unavailable: Redis is unavailable as a whole; start the worker again.
    """
    async with open_models(container.settings.get(Companions)) as providers:
        context = ResponderContext(container, providers)
        await run_partitions(
            container.hot,
            "assistant",
            lambda partition: AssistantWorker(context, partition, owner).run(),
        )
