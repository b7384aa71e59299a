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
from chatserver.domain.ids import ChatId, GatewayId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ClientError, CorruptData, NotFound, Unavailable
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.hot.pending_responses import PendingResponses, StartedResponse
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.model import Companion, CompanionSession
from chatserver.features.companions.providers.registry import Providers, open_models
from chatserver.features.companions.settings import Companions
from chatserver.features.companions.worker.memory_extraction import MemoryExtractor
from chatserver.features.companions.worker.prompt_images import PromptImages
from chatserver.features.companions.worker.responder import (
    LeaseLost,
    Responder,
    ResponderContext,
    RetryLater,
    get_call_limits,
)
from chatserver.features.companions.worker.session_summaries import SessionSummaries
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.service.history.history_pages import History
from chatserver.service.history.reader_views import ReaderViews
from chatserver.service.messaging.message_sender import MessageSender
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


class ResponseSlots:
    """Counts the responses in progress in this process, across partitions."""

    def __init__(self, responses_max: int) -> None:
        self._max = responses_max
        self.count = 0

    @property
    def room(self) -> int:
        """The number of further responses that this process can start now."""
        return self._max - self.count


class AssistantWorker:
    """Responds in the companion sessions of one partition."""

    def __init__(
        self,
        *,
        container: StorageContainer,
        context: ResponderContext,
        running: ResponseSlots,
        partition: int,
        owner: str,
    ) -> None:
        self._container = container
        self._context = context
        self._running = running
        self._lease = container.make_lease("assistant", owner, LEASE_S, partition)
        self._pending = PendingResponses(container.hot, partition)
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
                await self._pending.close()

    async def _stop_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _process_partition(self) -> None:
        checkpoint = await self._pending.get_checkpoint()
        while await self._lease.hold():
            entries = await self._pending.list_after(checkpoint, READ_MAX)
            if entries:
                await self._pending.record(entries)
                failpoint("assistant.after_record")
                checkpoint = entries[-1].id
            is_pending = await self._start_due()
            if len(entries) < READ_MAX:
                await self._pending.wait_after(checkpoint, WAIT_MS if is_pending else IDLE_MS)

    async def _start_due(self) -> bool:
        """Start pending sessions, unless they wait for a retry; return False if none is pending.

        The number of sessions in progress is limited per process.
        """
        room = self._running.room
        if room <= 0:
            return True
        due, is_pending = await self._pending.list_due(room + len(self._tasks))
        for chat in due:
            if chat not in self._tasks and self._running.room > 0:
                self._running.count += 1
                task = asyncio.create_task(self._process_session(chat), name=f"session-{chat}")
                self._tasks[chat] = task
                task.add_done_callback(functools.partial(self._remove_task, chat))
        return is_pending

    def _remove_task(self, chat: ChatId, _: asyncio.Task[None]) -> None:
        self._running.count -= 1
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
        except LeaseLost:
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
        due_ms = await self._now_ms() + int(add_jitter(wait_s) * 1000)
        await self._pending.schedule_retry(started, due_ms)

    async def _now_ms(self) -> int:
        """Return the Redis server's time, which determines when a retry starts."""
        hot = self._container.hot
        return await hot.get_time_ms(hot.keys.checkpoint(self._lease.partition))

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
        persona = await self._find_persona(session)
        if persona is None:
            return
        if session.is_active:
            await self._context.session_memory.rebuild(session, persona)
        else:
            await self._context.memory_extractor.finish(session, persona, started.tries)

    async def _find_persona(self, session: CompanionSession) -> Companion | None:
        try:
            persona = await self._context.catalog.get_companion(
                session.companion, session.ai_version
            )
        except NotFound:
            return None
        return None if persona.is_deleted else persona


def build_context(container: StorageContainer, providers: Providers) -> ResponderContext:
    settings, hot, clock = container.settings, container.hot, container.clock
    nobody = GatewayId("-")  # a worker is not a gateway: it has no connected devices
    poster, chat_log = RemoteDelivery(container.gateway_stream_writer, nobody), ChatLog(hot)
    body, pages = settings.chats.body_bounds, settings.chats.page_bounds
    members = MemberCheck(hot, container.audiences)
    history = History(
        log=chat_log,
        older=container.older_tiers,
        members=members,
        clock=clock,
        views=ReaderViews(chat_log, HiddenMessages(hot)),
        pages=pages,
    )
    budgets = TokenBudgets(hot, settings.get(Companions))
    companions = container.get(CompanionContainer)
    files = container.get(AttachmentContainer)
    return ResponderContext(
        settings=settings,
        clock=clock,
        catalog=companions.catalog,
        providers=providers,
        history=history,
        messaging=MessageSender(
            make_commits=functools.partial(PartitionedCommit, hot, nobody),
            audiences=container.audiences,
            inboxes=container.inboxes,
            undelivered=container.undelivered_chats,
            devices=poster,
            large_chats=LargeChatSubscriptions(hot, nobody, settings.gateway.online_ttl_s),
            clock=clock,
            body_bounds=body,
        ),
        references=HotMembership(hot),
        budgets=budgets,
        deltas=ResponseStream(hot),
        inboxes=container.inboxes,
        poster=poster,
        session_memory=SessionSummaries(
            settings=settings,
            clock=clock,
            call_limits=get_call_limits(),
            providers=providers,
            summaries=companions.summaries,
            history=history,
            budgets=budgets,
        ),
        images=PromptImages(files.rows, files.objects),
        outbound=container.outbound,
        memory_extractor=MemoryExtractor(
            settings=settings,
            clock=clock,
            call_limits=get_call_limits(),
            providers=providers,
            rows=companions.memory_rows,
            sessions=companions.session_rows,
            history=history,
            budgets=budgets,
            pending=PendingResponses(hot, 0),
        ),
    )


async def run_assistant(container: StorageContainer, owner: str) -> None:
    """Respond for all partitions until cancelled.

    Raises:
        Unavailable: Redis is unavailable as a whole; start the worker again.
    """
    running = ResponseSlots(container.settings.get(Companions).responses_max)
    async with open_models(container.settings.get(Companions)) as providers:
        context = build_context(container, providers)

        async def answer(partition: int) -> None:
            await AssistantWorker(
                container=container,
                context=context,
                running=running,
                partition=partition,
                owner=owner,
            ).run()

        await run_partitions(container.hot, "assistant", answer)
