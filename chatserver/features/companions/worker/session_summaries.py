"""Summaries of a companion session's oldest messages, which no longer fit into the context.

A summary records the range of messages that it covers. If one of these messages is edited, expires,
or is deleted for everyone or for one user, the summary is dropped before the next response and
rebuilt from the current messages. So deleted content is never sent to a model again.

A summary is created after a response, so it does not delay this response. A failed attempt is
retried after the next response; until then, the oldest messages are missing from the context.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import attrs
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.text_validation import BodyBounds, clean_body
from chatserver.errors import ChatError, RateLimited
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.model import Companion, CompanionSession, SessionSummary
from chatserver.features.companions.providers.model_call import ModelCaller
from chatserver.features.companions.providers.token_estimates import cut_to_tokens
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.companions.worker.prompt_context import (
    CONTEXT_MESSAGES_MAX,
    PromptMessage,
    build_prompt_messages,
    choose_old,
    compute_room,
    list_answered,
)
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import HistoryPages
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

SUMMARY_TOKENS_MAX = 600

SUMMARY_S_MAX = 60.0  # time limit for creating a summary; the next response waits for it
PAGES_MAX = 10  # maximum additional history pages per summary; older messages are left out
PARTS_MAX = 20  # maximum model calls per summary
PART_TOKENS_MIN = 256
WORDS_PER_TOKEN = 0.6
SUMMARIZE = (
    "You keep the memory of a conversation between a user and an assistant. Write down, in the "
    "language of the conversation, what the assistant has to know of it later: facts about the "
    "user, what was agreed, what is still open. At most {words} words, and nothing but that."
)
BEFORE = "What you wrote down so far:\n{text}\n\nWhat was said since:\n"


@attrs.define(eq=False, repr=False, kw_only=True)
class SessionSummaries:
    """Creates, reads and drops session summaries."""

    _bounds: BodyBounds
    _clock: Clock
    _models: ModelCaller
    _summaries: Summaries
    _history: HistoryPages
    _budgets: TokenBudgets

    async def find(self, chat: ChatId) -> SessionSummary | None:
        """Return a session's summary, or None. Drop it if one of its messages has expired."""
        summary = await self._summaries.find(chat)
        if summary is None or summary.expires_at is None:
            return summary
        if summary.expires_at > self._clock.time():
            return summary
        await self._drop(chat)
        return None

    async def drop_changed(self, chat: ChatId, changed: int) -> bool:
        """Drop the summary if it covers message `changed` or a later one; return True if dropped.

        Guarantees:
            Idempotent.
        """
        summary = await self._summaries.find(chat)
        if summary is None or changed > summary.upto:
            return False
        await self._drop(chat)
        log.info("assistant.summary_dropped", chat=chat, changed=changed)
        return True

    async def _drop(self, chat: ChatId) -> None:
        await self._summaries.drop(chat)
        metrics.SUMMARIES.labels("dropped").inc()

    async def update(
        self,
        session: CompanionSession,
        persona: Companion,
        prompt_messages: Sequence[PromptMessage],
        summary: SessionSummary | None,
    ) -> None:
        """Call `rebuild` if the unsummarized messages use too much of the context.

        `prompt_messages`: a page of the session's messages, usually the newest page.
        """
        if _choose_old(persona, prompt_messages, summary):
            await self.rebuild(session, persona)

    async def rebuild(self, session: CompanionSession, persona: Companion) -> None:
        """Summarize the oldest messages if the unsummarized ones use too much of the context.

        Messages that still wait for a response are left out, because it may refuse them.

        Guarantees:
            If the model or a tier fails, nothing is raised and the summary does not change.
            Bounded by `SUMMARY_S_MAX`, `PAGES_MAX` and the user's remaining tokens.
        """
        try:
            async with asyncio.timeout(SUMMARY_S_MAX):
                summary = await self.find(session.chat)
                entries = await self._read(session, summary)
                answered = list_answered(entries, session.companion)
                if not answered:
                    return
                prompt_messages = build_prompt_messages(entries, session.companion)
                old = [
                    message
                    for message in _choose_old(persona, prompt_messages, summary)
                    if message.seq <= answered[-1].seq
                ]
                if old:
                    await self._budgets.check(session.user, session.chat)
                    await self._summarize(session, persona, old, summary)
        except RateLimited:
            return
        except (ChatError, TimeoutError) as exc:
            metrics.SUMMARIES.labels("failed").inc()
            log.warning("assistant.summary_failed", chat=session.chat, error=str(exc))

    async def _read(
        self, session: CompanionSession, summary: SessionSummary | None
    ) -> list[frames.Message]:
        """Return the newest entries that the summary does not cover, and some before them."""
        upto = 0 if summary is None else summary.upto
        entries: list[frames.Message] = []
        request = frames.History(0, session.chat, limit=CONTEXT_MESSAGES_MAX)
        for _ in range(1 + PAGES_MAX):
            page = await self._history.get_page(session.user, request)
            messages = [codec.decode_message(json) for json in page.messages]
            entries = [*messages, *entries]
            if not messages or messages[0].seq <= upto + 1:
                break
            request = frames.History(0, session.chat, before=messages[0].seq, limit=frames.PAGE_MAX)
        return entries

    async def _summarize(
        self,
        session: CompanionSession,
        persona: Companion,
        old: Sequence[PromptMessage],
        summary: SessionSummary | None,
    ) -> None:
        """Extend the summary with the messages `old`, in up to `PARTS_MAX` parts, and store it."""
        text = "" if summary is None else summary.text
        upto, spent = 0, 0
        room = max(PART_TOKENS_MIN, persona.context_tokens_max // 2)
        parts = split_parts(old, room)[:PARTS_MAX]
        try:
            for part in parts:
                text, tokens = await self._summarize_part(persona, text, part)
                upto, spent = part[-1].seq, spent + tokens
        finally:
            # Charge the tokens of the completed model calls, even if a later call has failed.
            if spent:
                with contextlib.suppress(ChatError):
                    await self._budgets.charge(session.user, session.chat, "", spent)
        failpoint("assistant.before_summary")
        first = old[0].seq if summary is None else summary.first
        rev = 1 if summary is None else summary.rev + 1
        expiries = [message.expires_at for part in parts for message in part]
        expiries += [] if summary is None else [summary.expires_at]
        expires_at = min((each for each in expiries if each is not None), default=None)
        # What a guardrail refuses is not summarized again, so an empty summary is stored, too.
        if upto and await self._summaries.put(
            session.chat, SessionSummary(Seq(first), Seq(upto), text, rev, expires_at)
        ):
            metrics.SUMMARIES.labels("written").inc()

    async def _summarize_part(
        self, persona: Companion, before: str, part: Sequence[PromptMessage]
    ) -> tuple[str, int]:
        """Return a summary of `before` and `part`, and the number of tokens used.

        `before`: the summary so far, or "". It is returned unchanged if the model, a guardrail or a
        moderation model refuses to summarize the part.
        """
        tokens_max = SUMMARY_TOKENS_MAX
        lines = "\n".join(f"{message.role}: {message.text}" for message in part)
        question = (BEFORE.format(text=before) if before else "") + lines
        system = SUMMARIZE.format(words=int(tokens_max * WORDS_PER_TOKEN))
        text, outcome, tokens = await self._models.ask(
            persona, system, question, tokens_max, "summary"
        )
        text = cut_to_tokens(clean_body(text, self._bounds).strip(), tokens_max)
        if outcome.end == "refused":
            log.info("assistant.summary_refused", seq=part[0].seq, upto=part[-1].seq)
            return before, tokens
        if outcome.end not in ("done", "length") or not text:
            raise ChatError(f"the model did not complete a summary: it ended with {outcome.end}")
        return text, tokens


def _choose_old(
    persona: Companion, prompt_messages: Sequence[PromptMessage], summary: SessionSummary | None
) -> list[PromptMessage]:
    room = compute_room(persona, summary)
    return choose_old(prompt_messages, summary, room, CONTEXT_MESSAGES_MAX)


def split_parts(prompt_messages: Sequence[PromptMessage], room: int) -> list[list[PromptMessage]]:
    """Split messages into parts of at most `room` tokens. A longer message is a part by itself."""
    parts: list[list[PromptMessage]] = []
    remaining = 0
    for message in prompt_messages:
        if not parts or message.tokens > remaining:
            parts.append([])
            remaining = room
        parts[-1].append(message)
        remaining -= message.tokens
    return parts
