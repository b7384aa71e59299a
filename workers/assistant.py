"""Answers the messages that users send to AI companions. See docs/assistant.md and decision 0034.

::

    backlog ─► sessions that wait ({pN}:asked) ─► begin: which message ─► workers.answering ─► end
      │ here, at once                    ▲                │ killed: begun again, the same message
      └ persist, before it trims ────────┘                └ a tier is away: later

One worker answers the sessions of a partition, by a lease; answers of different sessions are made
side by side, those of one session one after the other. What the user writes while an answer is made
waits, and is answered together, by one answer to the last of it.

Dies anywhere: what a session waits for leaves Redis only when its answer is committed, and the
answer's reference lets it be committed once. Devices see the answer begin anew, as another turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools

import structlog

from chatserver.ai.providers import Providers, open_models
from chatserver.domain.companions import CompanionSession
from chatserver.domain.ids import ChatId, GatewayId
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError, ClientError, CorruptData, NotFound, Unavailable
from chatserver.hot.amending import Hidden
from chatserver.hot.asking import AskedSessions, Begun
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.deltas import Deltas
from chatserver.hot.groupcommit import PartitionedCommit
from chatserver.hot.leases import Lease
from chatserver.hot.membership import HotMembership, MemberCheck
from chatserver.hot.posting import Poster
from chatserver.hot.tokens import TokenBudgets
from chatserver.hot.watchers import Watchers
from chatserver.service.history import History
from chatserver.service.messaging import Messaging
from chatserver.service.views import Views
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from workers.answering import Again, Answering, Desk, LeaseLost, pace_of
from workers.partitions import run_partitions
from workers.parts import WorkerParts
from workers.remembering import Remembering

log = structlog.get_logger()

READ_MAX = 100  # entries of the backlog; one is up to redis.batch_max messages
WAIT_MS = 250  # without entries: how often it is looked for what comes up again
UNKNOWN_TRIES_MAX = 8  # of a chat that looks like a session and is none
AGAIN_S = 0.5
AGAIN_S_MAX = 30.0
BROKEN_TRIES_MAX = 5  # of what fails by a mistake of ours


class Running:
    """The answers being made by this process, of all partitions."""

    def __init__(self, turns_max: int) -> None:
        self._max = turns_max
        self.count = 0

    @property
    def room(self) -> int:
        """How many more there may be."""
        return self._max - self.count


class AssistantWorker:
    """The one that answers the sessions of a partition."""

    def __init__(
        self, parts: WorkerParts, desk: Desk, running: Running, partition: int, owner: str
    ) -> None:
        self._parts = parts
        self._desk = desk
        self._running = running
        self._lease_s = parts.settings.assistant.lease_s
        self._lease = Lease(parts.hot, partition, "assistant", owner, self._lease_s, parts.clock)
        self._asked = AskedSessions(parts.hot, partition)
        self._tasks: dict[ChatId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer until cancelled; on the way out the lease is given back.

        Raises:
            Unavailable: Redis went away; start again.
        """
        async with self._lease.given_back():
            try:
                while True:
                    if not await self._lease.hold():
                        await self._stop_all()
                        await asyncio.sleep(jittered(self._lease_s / 5))
                        continue
                    await self._work()
            finally:
                await self._stop_all()
                await self._asked.close()

    async def _stop_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        at = await self._asked.get_heard()
        while await self._lease.hold():
            entries = await self._asked.list_after(at, READ_MAX)
            if entries:
                await self._asked.note(entries)
                failpoint("assistant.after_note")
                at = entries[-1].id
            await self._start_due()
            if len(entries) < READ_MAX:
                await self._asked.wait_after(at, WAIT_MS)

    async def _start_due(self) -> None:
        """Begin with what is due, as far as there is room."""
        room = self._running.room
        if room <= 0:
            return
        now_ms = await self._now_ms()
        for chat in await self._asked.list_due(now_ms, room + len(self._tasks)):
            if chat not in self._tasks and self._running.room > 0:
                self._running.count += 1
                task = asyncio.create_task(self._serve(chat), name=f"session-{chat}")
                self._tasks[chat] = task
                task.add_done_callback(functools.partial(self._served, chat))

    def _served(self, chat: ChatId, _: asyncio.Task[None]) -> None:
        self._running.count -= 1
        del self._tasks[chat]

    async def _serve(self, chat: ChatId) -> None:
        """Give a session what it waits for, until it waits for nothing."""
        try:
            while True:
                begun = await self._asked.begin(self._lease, chat)
                if begun is None or not await self._do(begun):
                    return
        except ChatError as exc:  # Redis itself: it comes up again
            log.warning("assistant.failed", chat=chat, error=exc.message)

    async def _do(self, begun: Begun) -> bool:
        """Do what a session waits for, and say so; True if it waits for more."""
        try:
            await self._step(begun)
        except Again as exc:
            await self._postpone(begun, exc.wait_s)
            return False
        except LeaseLost:
            return False
        except Unavailable as exc:
            log.warning("assistant.again", chat=begun.chat, error=exc.message)
            await self._postpone(begun, min(AGAIN_S * 2 ** min(begun.tries, 10), AGAIN_S_MAX))
            return False
        except Exception:
            log.exception("assistant.crashed", chat=begun.chat)
            if begun.tries < BROKEN_TRIES_MAX:
                await self._postpone(begun, AGAIN_S * 2**begun.tries)
                return False
            # It would fail for ever; the session goes on with its next message.
            await self._give_up(begun)
        return await self._asked.end(begun)

    async def _give_up(self, begun: Begun) -> None:
        """Tell the user that there will be no answer, if that is possible. Raises Unavailable."""
        with contextlib.suppress(ClientError, CorruptData):
            session = await self._desk.book.find_session_by_chat(begun.chat)
            if session is not None and begun.seq:
                await self._answering(session, begun).give_up()

    def _answering(self, session: CompanionSession, begun: Begun) -> Answering:
        return Answering(self._desk, self._asked, session, begun, lambda: self._lease.left_s() > 0)

    async def _postpone(self, begun: Begun, wait_s: float) -> None:
        metrics.TURNS.labels("again").inc()
        due_ms = await self._now_ms() + int(jittered(wait_s) * 1000)
        await self._asked.postpone(begun, due_ms)

    async def _now_ms(self) -> int:
        """Return the time of Redis, by which `note_asked` notes who waits."""
        hot = self._parts.hot
        return await hot.time_ms(hot.keys.asked(self._lease.partition))

    async def _step(self, begun: Begun) -> None:
        was_dropped = False
        if begun.changed:  # first: of a user who is erased there may be no session any more
            was_dropped = await self._desk.remembering.forget(begun.chat, begun.changed)
        session = await self._desk.book.find_session_by_chat(begun.chat)
        if session is None:
            if begun.tries < UNKNOWN_TRIES_MAX:
                raise Unavailable("the session is not known, or not yet")
            log.warning("assistant.no_session", chat=begun.chat)
            return
        if begun.seq:
            await self._answering(session, begun).run()
        elif was_dropped:
            await self._rebuild(session)

    async def _rebuild(self, session: CompanionSession) -> None:
        try:
            persona = await self._desk.book.get_companion(session.companion, session.ai_version)
        except NotFound:
            return
        if session.is_active and not persona.is_deleted:
            await self._desk.remembering.rebuild(session, persona)


def make_desk(parts: WorkerParts, providers: Providers) -> Desk:
    """Put together what answers are made with."""
    settings, hot, clock = parts.settings, parts.hot, parts.clock
    nobody = GatewayId("-")  # a worker has no sessions and no mailbox
    poster, chat_log = Poster(parts.postman, nobody), ChatLog(hot)
    body, pages = settings.chats.body_bounds, settings.chats.page_bounds
    members = MemberCheck(hot, parts.audiences)
    history = History(chat_log, parts.older, members, clock, Views(chat_log, Hidden(hot)), pages)
    budgets = TokenBudgets(hot, settings.assistant)
    return Desk(
        settings=settings,
        clock=clock,
        book=parts.talks.book,
        providers=providers,
        history=history,
        messaging=Messaging(
            PartitionedCommit(hot, nobody),
            parts.audiences,
            parts.inboxes,
            parts.settling,
            poster,
            Watchers(hot, nobody, settings.gateway.online_ttl_s),
            settings.gateway.expires_s_max,
            clock,
            body,
        ),
        references=HotMembership(hot),
        budgets=budgets,
        deltas=Deltas(hot),
        inboxes=parts.inboxes,
        poster=poster,
        remembering=Remembering(
            settings, clock, pace_of(settings), providers, parts.summaries, history, budgets
        ),
    )


async def run_assistant(parts: WorkerParts, owner: str) -> None:
    """Answer for every partition, until cancelled.

    Raises:
        Unavailable: Redis went away as a whole; start again.
    """
    running = Running(parts.settings.assistant.turns_max)
    async with open_models(parts.settings.assistant) as providers:
        desk = make_desk(parts, providers)

        async def answer(partition: int) -> None:
            await AssistantWorker(parts, desk, running, partition, owner).run()

        await run_partitions(parts.hot, "assistant", answer)
