"""AI response: from the user's message to the companion's committed message.

::

    persona, memory, one page of history ─► reserve tokens ─► model ─► deltas ─► devices
                                                │ none left      │ stop, end, failure
                                                ▼                ▼
                                      message with the reason  one message, deterministic ref

Every response ends with a message from the companion: the full response, a partial one, or the
reason for the failure. There is no such message if the user stopped the response before it had any
text, deleted the message that it answers, ended the session or blocked the companion. The `ref` of
the companion's message is derived from the seq of the answered message. If two workers respond to
the same message, one commits and the other gets a conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

import attrs
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import get_now_ms
from chatserver.domain.ids import Ref, new_id
from chatserver.domain.jitter import add_jitter
from chatserver.domain.text_validation import clean_body, is_blank
from chatserver.errors import ChatError, Conflict, Forbidden, NotFound, RateLimited, Unavailable
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.hot.pending_responses import PendingResponses, StartedResponse
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets, TooManyResponses
from chatserver.features.companions.model import Companion, CompanionSession, SessionSummary
from chatserver.features.companions.providers.interface import Finish
from chatserver.features.companions.providers.model_call import ModelCaller
from chatserver.features.companions.providers.registry import Providers
from chatserver.features.companions.providers.token_estimates import estimate_tokens
from chatserver.features.companions.response_timeouts import RESPONSE_TIMEOUT_S
from chatserver.features.companions.settings import Companions
from chatserver.features.companions.user_memory import UserMemory
from chatserver.features.companions.worker.memory_extraction import MemoryExtractor, render_memory
from chatserver.features.companions.worker.model_rounds import ModelRounds
from chatserver.features.companions.worker.prompt_context import (
    CONTEXT_MESSAGES_MAX,
    Context,
    PromptMessage,
    build_context,
    build_prompt_messages,
)
from chatserver.features.companions.worker.prompt_images import PromptImages
from chatserver.features.companions.worker.response_publisher import ResponsePublisher
from chatserver.features.companions.worker.session_summaries import SessionSummaries
from chatserver.features.companions.worker.tool_calls import ToolRunner
from chatserver.features.webhooks.settings import Webhooks
from chatserver.protocol import codec, frames
from chatserver.service.messaging.message_sender import OutgoingMessage
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

FLUSH_MS = 100  # the first delta is sent immediately; later text is collected for this time
JOIN_S = 120  # devices can read the text of a finished response for this time

POLL_S = 0.2  # interval for reading stop requests and the list of the user's gateways
COMMIT_TRIES_MAX = 6
COMMIT_S_MAX = 10.0
TTL_MARGIN_S = 60.0

FAILED = {
    "unavailable": "Sorry, I can't answer right now. Please try again later.",
    "overloaded": "Sorry, I'm too busy right now. Please try again later.",
    "internal": "Sorry, I can't answer: I'm not configured correctly. Please contact the "
    "administrator.",
    "not_found": "This companion no longer exists.",
}
REFUSED = "I can't answer that."
NOTHING = "I have no answer to that."


class RetryLater(Exception):  # a request to retry, not an error
    """The response must be retried after `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"retry in {wait_s:g} s")
        self.wait_s = wait_s


class ResponderLeaseLost(Unavailable):
    """Another worker holds the lease of this partition."""


class ResponderContext:
    """The dependencies of responders, and the number of responses in progress in this process."""

    def __init__(self, container: StorageContainer, providers: Providers) -> None:
        companions, files = container.get(CompanionContainer), container.get(AttachmentContainer)
        bounds, clock = container.settings.chats.body_bounds, container.clock
        models = ModelCaller(providers=providers, bounds=bounds, clock=clock)
        self.container = container
        self.providers = providers
        self.catalog = companions.catalog
        self.budgets = TokenBudgets(container.hot, container.settings.get(Companions))
        self.deltas = ResponseStream(container.hot)
        self.images = PromptImages(files.rows, files.objects)
        self.session_memory = SessionSummaries(
            bounds=bounds,
            clock=clock,
            models=models,
            summaries=companions.summaries,
            history=container.history,
            budgets=self.budgets,
        )
        self.memory_extractor = MemoryExtractor(
            clock=clock,
            models=models,
            rows=companions.memory_rows,
            sessions=companions.session_rows,
            history=container.history,
            budgets=self.budgets,
            pending=PendingResponses(container.hot, 0),
        )
        self.running_count = 0


class _SessionPage(NamedTuple):
    """A page of the session's messages, the summary, the user's memory, and the resulting context.

    The page is the newest one, unless the answered message is on an older page.
    """

    messages: list[PromptMessage]
    summary: SessionSummary | None
    user_memory: UserMemory | None
    context: Context


@attrs.define(eq=False, repr=False, kw_only=True)
class Responder:
    """Creates one response. `is_held`: whether this worker still holds the partition's lease."""

    _context: ResponderContext
    _pending: PendingResponses
    _session: CompanionSession
    _started: StartedResponse
    _is_held: Callable[[], bool]
    _response_id: str = attrs.field(factory=new_id, init=False)

    @property
    def _ref(self) -> Ref:
        return Ref(f"ai-{self._started.seq}")

    async def run(self) -> None:
        """Create and commit the response.

        Guarantees:
            Idempotent: a message gets one response, no matter how many workers run this or how
            often.
            Cancellation: safe; a worker restarts the response later.
            Cost: one or two pages of history, however long the session is.

        Raises:
            RetryLater: the user has too many responses in progress.
            Unavailable: a tier is down; nothing has been committed, or the outcome is unknown.
        """
        session = self._session
        references = self._context.container.hot_membership
        if await references.find_digest(session.chat, session.companion, self._ref) is not None:
            metrics.RESPONSES.labels("none").inc()
            return  # a worker has committed the response, but crashed before recording that
        persona = await self._context.catalog.find_persona(session)
        if persona is None:
            await self._fail("", "not_found", FAILED["not_found"])
            return
        loaded = await self._load(persona)
        if loaded is None:
            metrics.RESPONSES.labels("none").inc()
            return
        reserved = loaded.context.tokens + persona.answer_tokens_max
        user, chat = session.user, session.chat
        try:
            await self._context.budgets.reserve(user, chat, self._response_id, reserved)
        except TooManyResponses as exc:
            raise RetryLater((exc.retry_after_ms or 0) / 1000) from exc
        except RateLimited as exc:
            await self._fail(persona.model, exc.code, f"Sorry, {exc.message}.")
            return
        spent = await self._respond(persona, loaded.context)
        await self._context.budgets.charge(user, chat, self._response_id, spent)
        failpoint("assistant.after_charge")
        await self._context.session_memory.update(session, persona, loaded.messages, loaded.summary)
        await self._context.memory_extractor.update(
            session, persona, loaded.messages, loaded.user_memory
        )

    async def report_failure(self) -> None:
        """Commit a message that reports an internal failure. Guarantees and errors: see `run`."""
        await self._fail("", "internal", FAILED["internal"])

    async def _load(self, persona: Companion) -> _SessionPage | None:
        session, limit = self._session, CONTEXT_MESSAGES_MAX
        summary, page = await asyncio.gather(
            self._context.session_memory.find(session.chat),
            # Read the history as this user, so that messages that the user has deleted for
            # themselves only are not sent to the model.
            self._context.container.history.get_page(
                session.user, frames.History(0, session.chat, limit=limit)
            ),
        )
        messages = [codec.decode_message(json) for json in page.messages]
        if messages and messages[0].seq > self._started.seq:
            # Many messages have followed the answered message, which is therefore on an older page.
            request = frames.History(0, session.chat, before=self._started.seq + 1, limit=limit)
            page = await self._context.container.history.get_page(session.user, request)
            messages = [codec.decode_message(json) for json in page.messages]
        prompt_messages = build_prompt_messages(
            messages, session.companion, persona.options.images_max
        )
        is_first = summary is None and all(message.role == "user" for message in prompt_messages)
        user_memory = await self._context.memory_extractor.load(session, persona, is_first=is_first)
        now_ms = get_now_ms(self._context.container.clock)
        notes = render_memory(user_memory, persona, now_ms)
        context = build_context(persona, summary, prompt_messages, self._started.seq, notes)
        if context is None:
            return None
        return _SessionPage(prompt_messages, summary, user_memory, context)

    # Model

    async def _respond(self, persona: Companion, context: Context) -> int:
        """Stream the model's response and commit it; return how many tokens were used."""
        publisher = ResponsePublisher(
            deltas=self._context.deltas,
            inboxes=self._context.container.inboxes,
            delivery=self._context.container.device_delivery,
            session=self._session,
            seq=self._started.seq,
            response_id=self._response_id,
            flush_s=FLUSH_MS / 1000,
        )
        text = await self._find_streamed_text() if self._started.is_stopped else ""
        await publisher.start(RESPONSE_TIMEOUT_S + TTL_MARGIN_S)
        if text:
            publisher.append(text)
        failpoint("assistant.after_begin")
        metrics.RESPONSES_RUNNING.inc()
        try:
            outcome = await self._generate_until_stopped(persona, context, publisher)
            publisher.flush()
            failpoint("assistant.before_commit")
            ai = await self._commit_response(persona, context, publisher, outcome)
        except BaseException:
            publisher.cancel()
            raise
        finally:
            metrics.RESPONSES_RUNNING.dec()
        failpoint("assistant.after_commit")
        await publisher.end(ai.end, JOIN_S)
        metrics.RESPONSES.labels(ai.end).inc()
        metrics.RESPONSE_TOKENS.labels("in").inc(ai.tokens_in)
        metrics.RESPONSE_TOKENS.labels("out").inc(ai.tokens_out)
        return ai.tokens_in + ai.tokens_out

    async def _find_streamed_text(self) -> str:
        """Return the text that a crashed worker streamed before the user stopped the response."""
        delta = await self._context.deltas.find(self._session.chat)
        return delta.text if delta is not None and delta.seq == self._started.seq else ""

    async def _generate_until_stopped(
        self, persona: Companion, context: Context, publisher: ResponsePublisher
    ) -> Finish | ChatError | None:
        """Publish the response until it ends, fails or is stopped.

        Return a ChatError if the model failed, or None if the user stopped the response.
        """
        if self._started.is_stopped:
            return None
        generation = asyncio.create_task(
            self._generate(persona, context, publisher),
            name=f"response-{self._session.chat}",
        )
        stop_request = asyncio.create_task(
            self._wait_for_stop(publisher), name=f"stop-{self._session.chat}"
        )
        try:
            await asyncio.wait({generation, stop_request}, return_when=asyncio.FIRST_COMPLETED)
            return generation.result() if generation.done() else None
        finally:
            for task in (generation, stop_request):
                task.cancel()
            await asyncio.gather(generation, stop_request, return_exceptions=True)

    async def _generate(
        self, persona: Companion, context: Context, publisher: ResponsePublisher
    ) -> Finish | ChatError:
        tools = ToolRunner(
            outbound=self._context.container.outbound,
            secret=self._context.container.settings.get(Webhooks).secret.get_secret_value(),
            clock=self._context.container.clock,
            session=self._session,
            persona=persona,
            seq=self._started.seq,
        )
        generation = ModelRounds(
            settings=self._context.container.settings,
            clock=self._context.container.clock,
            providers=self._context.providers,
            persona=persona,
            tools=tools,
            publisher=publisher,
        )
        images = {}
        if context.image_ids:
            images = await self._context.images.load(self._session.chat, context.image_ids)
        return await generation.run(context, images)

    async def _wait_for_stop(self, publisher: ResponsePublisher) -> None:
        while True:
            with contextlib.suppress(Unavailable):  # while Redis is down, the response continues
                if await self._pending.is_stopped(self._started):
                    return
            await publisher.refresh_gateways()
            await asyncio.sleep(POLL_S)

    # Message

    async def _commit_response(
        self,
        persona: Companion,
        context: Context,
        publisher: ResponsePublisher,
        outcome: Finish | ChatError | None,
    ) -> frames.Ai:
        """Commit the response as a message; return the message's `ai` field."""
        text = publisher.text
        if isinstance(outcome, ChatError):
            code = outcome.code if outcome.code in FAILED else "internal"
            ai = frames.Ai(persona.model, "failed", code=code)
            await self._commit(FAILED[code], ai)
            return ai
        body = clean_body(text, self._context.container.settings.chats.body_bounds)
        tokens_in = None if outcome is None else outcome.tokens_in
        tokens_out = None if outcome is None else outcome.tokens_out
        ai = frames.Ai(
            persona.model,
            "stopped" if outcome is None else outcome.end,
            context.tokens if tokens_in is None else tokens_in,
            (estimate_tokens(text) if text else 0) if tokens_out is None else tokens_out,
            tools=publisher.tools,
        )
        if not is_blank(body):
            await self._commit(body, ai)
        elif outcome is not None:
            await self._commit(REFUSED if outcome.end == "refused" else NOTHING, ai)
        return ai

    async def _fail(self, model: str, code: str, words: str) -> None:
        await self._commit(words, frames.Ai(model, "failed", code=code))
        metrics.RESPONSES.labels("failed").inc()

    async def _commit(self, body: str, ai: frames.Ai) -> None:
        """Commit a message from the companion, with the `ref` derived from the answered message."""
        session, messaging = self._session, self._context.container.messaging
        frame = frames.Send(0, session.chat, self._ref, body, reply_to=self._started.seq)
        wait_s = 0.1
        for attempts_left in reversed(range(COMMIT_TRIES_MAX)):
            if not self._is_held():
                raise ResponderLeaseLost("another worker holds the lease")
            try:
                async with asyncio.timeout(COMMIT_S_MAX):
                    await messaging.send(OutgoingMessage(session.companion, frame, ai=ai))
            except Conflict:
                return  # another worker committed a different response
            except (Forbidden, NotFound) as exc:
                # Drop the response, because the session has ended or the user has blocked the
                # companion.
                log.info("assistant.response_stopped", chat=session.chat, error=exc.message)
                return
            except (Unavailable, TimeoutError) as exc:
                if not attempts_left:
                    raise Unavailable(
                        f"the response was not committed: {exc}",
                        public="the response was not committed; try again",
                    ) from exc
                await asyncio.sleep(add_jitter(wait_s))
                wait_s = min(2 * wait_s, 2.0)
            else:
                return
