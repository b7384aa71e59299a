"""One answer of a companion: from the message that asks to the message that says it.

::

    persona, memory, one page of history ─► tokens reserved ─► model ─► deltas ─► devices
                                                │ none left        │ stop, end, death
                                                ▼                  ▼
                                       a message that says so   one message, by a deterministic ref

Whatever becomes of the model, a message of the companion stands at the end: an answer, as much of
one as there is, or the reason why there is none, in words. Only what the user stopped before it
began, or took back, has none. The message's `ref` follows from the chat and the seq of the message
that is answered, so of two workers that both answer it one commits, and the other learns that.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import structlog

from chatserver.ai.provider import Ask
from chatserver.ai.providers import Providers
from chatserver.ai.speaking import Pace, Spoken, speak
from chatserver.ai.tokens import estimate_tokens
from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.companions import Companion, CompanionBook, CompanionSession, Memory
from chatserver.domain.ids import Ref, Seq, Ts, new_id
from chatserver.domain.jitter import jittered
from chatserver.domain.messages import Draft
from chatserver.domain.text import clean_body
from chatserver.errors import (
    ChatError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unavailable,
)
from chatserver.hot.asking import AskedSessions, Begun
from chatserver.hot.deltas import Deltas
from chatserver.hot.inbox import Inboxes
from chatserver.hot.membership import HotMembership
from chatserver.hot.posting import Poster
from chatserver.hot.tokens import TokenBudgets, TooManyTurns
from chatserver.protocol import codec, frames
from chatserver.service.history import History
from chatserver.service.messaging import Messaging
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from workers.context import Context, Utterance, build_context, hear
from workers.outflow import Outflow
from workers.remembering import Remembering

log = structlog.get_logger()

WATCH_S = 0.2  # how often it is looked whether somebody pressed stop, and where the user is
COMMIT_TRIES_MAX = 6
COMMIT_S_MAX = 10.0
TTL_SPARE_S = 60.0

FAILED = {
    "unavailable": "Sorry, I cannot answer right now. Please try again in a while.",
    "overloaded": "Sorry, I am asked too much right now. Please try again in a while.",
    "internal": "Sorry, I cannot answer: I am not set up properly. Whoever runs this server has "
    "to look at it.",
    "not_found": "This companion is not there any more.",
}
REFUSED = "I cannot answer that."
NOTHING = "I have nothing to say to that."


class Again(Exception):  # no error: a turn that has to wait
    """The turn has to be begun again later, in so many seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"again in {wait_s:g} s")
        self.wait_s = wait_s


class LeaseLost(Unavailable):
    """Somebody else answers this partition by now."""


@dataclasses.dataclass(frozen=True, slots=True)
class Desk:
    """What answers are made with."""

    settings: Settings
    clock: Clock
    book: CompanionBook
    providers: Providers
    history: History
    messaging: Messaging
    references: HotMembership
    budgets: TokenBudgets
    deltas: Deltas
    inboxes: Inboxes
    poster: Poster
    remembering: Remembering


class _Heard(NamedTuple):
    """A page of the session, its memory, and what was made of both."""

    said: list[Utterance]
    memory: Memory | None
    context: Context


class Answering:
    """Makes one answer. `is_held`: whether it is still ours to make."""

    def __init__(
        self,
        desk: Desk,
        asked: AskedSessions,
        session: CompanionSession,
        begun: Begun,
        is_held: Callable[[], bool],
    ) -> None:
        self._desk = desk
        self._settings = desk.settings.assistant
        self._asked = asked
        self._session = session
        self._begun = begun
        self._is_held = is_held
        self._turn = new_id()
        self._ref = Ref(f"ai-{begun.seq}")

    async def run(self) -> None:
        """Answer, once.

        Guarantees:
            Idempotent: a message has one answer, however often and by whomever this is run.
            Cancellation: safe; it is begun again, by somebody.
            Cost: one page of history, however long the session is.

        Raises:
            Again: too many answers are being made for the user.
            Unavailable: a tier is away; nothing was committed, or nobody knows.
        """
        session = self._session
        place = (session.chat, session.companion, self._ref)
        if await self._desk.references.find_digest(*place) is not None:
            metrics.TURNS.labels("none").inc()
            return  # answered by one that died before it could say so
        persona = await self._find_persona()
        if persona is None:
            await self._fail("", "not_found", FAILED["not_found"])
            return
        heard = await self._listen(persona)
        if heard is None:
            metrics.TURNS.labels("none").inc()
            return
        reserved = heard.context.tokens + persona.answer_tokens_max
        user, chat = session.user, session.chat
        try:
            await self._desk.budgets.reserve(user, chat, self._turn, reserved)
        except TooManyTurns as exc:
            raise Again((exc.retry_after_ms or 0) / 1000) from exc
        except RateLimited as exc:
            await self._fail(persona.model, exc.code, f"Sorry, {exc.message}.")
            return
        spent = await self._answer(persona, heard.context)
        await self._desk.budgets.settle(user, chat, self._turn, spent)
        failpoint("assistant.after_settle")
        await self._desk.remembering.keep_up(session, persona, heard.said, heard.memory)

    async def give_up(self) -> None:
        """Say that there is no answer, for a reason that is ours. As `run`."""
        await self._fail("", "internal", FAILED["internal"])

    async def _find_persona(self) -> Companion | None:
        session = self._session
        try:
            found = await self._desk.book.get_companion(session.companion, session.ai_version)
        except NotFound:
            return None
        return None if found.is_deleted else found

    async def _listen(self, persona: Companion) -> _Heard | None:
        session, limit = self._session, self._settings.context_messages_max
        memory, page = await asyncio.gather(
            self._desk.remembering.find(session.chat),
            # As the user sees it: what he deleted for himself is not told to a model.
            self._desk.history.get_page(session.user, frames.History(0, session.chat, limit=limit)),
        )
        messages = [codec.decode_message(json) for json in page.messages]
        if messages and messages[0].seq > self._begun.seq:
            # So much has been written since that the question is on another page.
            ask = frames.History(0, session.chat, before=self._begun.seq + 1, limit=limit)
            page = await self._desk.history.get_page(session.user, ask)
            messages = [codec.decode_message(json) for json in page.messages]
        said = hear(messages, session.companion)
        context = build_context(persona, memory, said, self._begun.seq)
        return None if context is None else _Heard(said, memory, context)

    # the model

    async def _answer(self, persona: Companion, context: Context) -> int:
        """Stream the model's answer and commit it; return the tokens that it cost."""
        settings = self._settings
        outflow = Outflow(
            self._desk.deltas,
            self._desk.inboxes,
            self._desk.poster,
            self._session,
            self._begun.seq,
            self._turn,
            settings.flush_ms / 1000,
        )
        said = await self._find_said() if self._begun.is_stopped else ""
        await outflow.begin(settings.answer_s + TTL_SPARE_S)
        if said:
            outflow.say(said)
        failpoint("assistant.after_begin")
        metrics.TURNS_RUNNING.inc()
        try:
            how = await self._stream(persona, context, outflow)
            outflow.hush()
            failpoint("assistant.before_commit")
            ai = await self._say(persona, context, outflow.text, how)
        except BaseException:
            outflow.drop()
            raise
        finally:
            metrics.TURNS_RUNNING.dec()
        failpoint("assistant.after_commit")
        await outflow.end(ai.end, settings.join_s)
        metrics.TURNS.labels(ai.end).inc()
        metrics.TURN_TOKENS.labels("in").inc(ai.tokens_in)
        metrics.TURN_TOKENS.labels("out").inc(ai.tokens_out)
        return ai.tokens_in + ai.tokens_out

    async def _find_said(self) -> str:
        """Return what a worker that died had said when the user stopped it."""
        found = await self._desk.deltas.find(self._session.chat)
        return found.text if found is not None and found.seq == self._begun.seq else ""

    async def _stream(
        self, persona: Companion, context: Context, outflow: Outflow
    ) -> Spoken | ChatError | None:
        """Return how the model ended, or why it did not begin; None: it was stopped."""
        if self._begun.is_stopped:
            return None
        speaking = asyncio.create_task(
            self._speak(persona, context, outflow), name=f"speak-{self._session.chat}"
        )
        watching = asyncio.create_task(self._watch(outflow), name=f"stop-{self._session.chat}")
        try:
            await asyncio.wait({speaking, watching}, return_when=asyncio.FIRST_COMPLETED)
            return speaking.result() if speaking.done() else None
        finally:
            for task in (speaking, watching):
                task.cancel()
            await asyncio.gather(speaking, watching, return_exceptions=True)

    async def _speak(
        self, persona: Companion, context: Context, outflow: Outflow
    ) -> Spoken | ChatError:
        clock, began = self._desk.clock, self._desk.clock.monotonic()
        ask = Ask(persona.model, context.system, context.messages, persona.answer_tokens_max)
        bounds = self._desk.settings.chats.body_bounds
        try:
            provider = await self._desk.providers.get_provider(persona.provider)
            pieces = speak(provider, ask, pace_of(self._desk.settings), bounds, clock)
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, Spoken):
                        return piece
                    if outflow.index == 0:
                        metrics.FIRST_DELTA.observe(clock.monotonic() - began)
                    outflow.say(piece.text)
                    failpoint("assistant.mid_answer")
        except ChatError as exc:
            log.warning("assistant.no_answer", companion=persona.id, error=exc.message)
            return exc
        raise AssertionError("speaking ends with Spoken")

    async def _watch(self, outflow: Outflow) -> None:
        """Return when somebody pressed stop."""
        while True:
            with contextlib.suppress(Unavailable):  # Redis is away: the answer goes on
                if await self._asked.is_stopped(self._begun):
                    return
            await outflow.look()
            await asyncio.sleep(WATCH_S)

    # the message

    async def _say(
        self, persona: Companion, context: Context, text: str, how: Spoken | ChatError | None
    ) -> frames.Ai:
        """Commit what was said, and return what is told of it."""
        if isinstance(how, ChatError):
            code = how.code if how.code in FAILED else "internal"
            ai = frames.Ai(persona.model, "failed", code=code)
            await self._commit(FAILED[code], ai)
            return ai
        body = clean_body(text, self._desk.settings.chats.body_bounds)
        tokens_in = None if how is None else how.tokens_in
        tokens_out = None if how is None else how.tokens_out
        ai = frames.Ai(
            persona.model,
            "stopped" if how is None else how.end,
            context.tokens if tokens_in is None else tokens_in,
            (estimate_tokens(text) if text else 0) if tokens_out is None else tokens_out,
        )
        if body.strip():
            await self._commit(body, ai)
        elif how is not None:
            await self._commit(REFUSED if how.end == "refused" else NOTHING, ai)
        return ai

    async def _fail(self, model: str, code: str, words: str) -> None:
        """Say why there is no answer."""
        await self._commit(words, frames.Ai(model, "failed", code=code))
        metrics.TURNS.labels("failed").inc()

    async def _commit(self, body: str, ai: frames.Ai) -> None:
        """Commit the companion's message, by the reference of what it answers."""
        session = self._session
        frame = frames.Send(0, session.chat, self._ref, body, reply_to=self._begun.seq)
        wait_s = 0.1
        for left in reversed(range(COMMIT_TRIES_MAX)):
            if not self._is_held():
                raise LeaseLost("another worker has the lease")
            answer = _Answer()
            try:
                async with asyncio.timeout(COMMIT_S_MAX):
                    self._desk.messaging.send(session.companion, frame, answer, ai=ai)
                    await answer.future
            except Conflict:
                return  # it was answered by somebody else, in other words
            except (Forbidden, NotFound) as exc:
                # The session was ended, or the user blocks the companion: nobody waits.
                log.info("assistant.not_wanted", chat=session.chat, why=exc.message)
                return
            except (Unavailable, TimeoutError) as exc:
                if not left:
                    raise Unavailable(f"answer: not committed: {exc}") from exc
                await asyncio.sleep(jittered(wait_s))
                wait_s = min(2 * wait_s, 2.0)
            else:
                return


class _Answer:
    """Hears once what became of a message."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Seq] = asyncio.get_running_loop().create_future()

    def acked(self, draft: Draft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """It has its place."""
        if not self.future.done():
            self.future.set_result(seq)

    def refused(self, draft: Draft, error: ChatError) -> None:
        """It has none, or nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)


def pace_of(settings: Settings) -> Pace:
    """Return how long to wait for models."""
    assistant = settings.assistant
    return Pace(
        assistant.first_delta_s,
        assistant.between_s,
        assistant.answer_s,
        assistant.attempts_max,
        assistant.backoff_s,
    )
