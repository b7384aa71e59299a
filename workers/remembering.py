"""What a companion remembers of a session when it no longer fits: a summary of the oldest turns.

The summary names the messages that it was made of, from its first to its last. When one of them is
edited or deleted, by whomever and for whomever, the summary is dropped before the next answer is
made, and made anew from what is there now. So nothing that was taken back is told to a model again.

Made after an answer, never before one: nobody waits for it. If it fails, the next answer's turn
tries again; until then the oldest turns are simply left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from chatserver.ai.provider import Ask, Delta, Said
from chatserver.ai.providers import Providers
from chatserver.ai.speaking import Pace, Spoken, speak
from chatserver.ai.tokens import cut_to_tokens, estimate_tokens
from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.companions import Companion, CompanionSession, Memory
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.text import clean_body
from chatserver.errors import ChatError, RateLimited
from chatserver.hot.tokens import TokenBudgets
from chatserver.protocol import codec, frames
from chatserver.service.history import History
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.summaries import Summaries
from workers.context import Utterance, choose_old, hear, room_of

log = structlog.get_logger()

SUMMARY_S_MAX = 60.0  # for one summary, of however many parts: meanwhile the session waits
PAGES_MAX = 10  # of history below the newest page: what lies before is forgotten
PARTS_MAX = 20  # calls of the model for one summary
PART_TOKENS_MIN = 256
WORDS_PER_TOKEN = 0.6
SUMMARIZE = (
    "You keep the memory of a conversation between a user and an assistant. Write down, in the "
    "language of the conversation, what the assistant has to know of it later: facts about the "
    "user, what was agreed, what is still open. At most {words} words, and nothing but that."
)
BEFORE = "What you wrote down so far:\n{text}\n\nWhat was said since:\n"


class Remembering:
    """The memories of sessions."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        pace: Pace,
        providers: Providers,
        summaries: Summaries,
        history: History,
        budgets: TokenBudgets,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._pace = pace
        self._providers = providers
        self._summaries = summaries
        self._history = history
        self._budgets = budgets

    async def find(self, chat: ChatId) -> Memory | None:
        """Return what is remembered of a session."""
        return await self._summaries.find(chat)

    async def forget(self, chat: ChatId, changed: int) -> bool:
        """Drop a summary that cites a message from `changed` on; True if there was one.

        Guarantees:
            Idempotent.
        """
        memory = await self._summaries.find(chat)
        if memory is None or changed > memory.upto:
            return False
        await self._summaries.drop(chat)
        metrics.SUMMARIES.labels("dropped").inc()
        log.info("assistant.summary_dropped", chat=chat, changed=changed)
        return True

    async def rebuild(self, session: CompanionSession, persona: Companion) -> None:
        """Make a summary anew, if there is so much to remember. As `keep_up`."""
        ask = frames.History(0, session.chat, limit=self._settings.assistant.context_messages_max)
        try:
            page = await self._history.get_page(session.user, ask)
            memory = await self._summaries.find(session.chat)
        except ChatError as exc:
            log.warning("assistant.summary_failed", chat=session.chat, error=exc.message)
            return
        said = hear(map(codec.decode_message, page.messages), session.companion)
        await self.keep_up(session, persona, said, memory)

    async def keep_up(
        self,
        session: CompanionSession,
        persona: Companion,
        said: Sequence[Utterance],
        memory: Memory | None,
    ) -> None:
        """Summarize the oldest turns, if what no summary has takes too much of the room.

        `said` is the newest page of the session.

        Guarantees:
            Never raises for a model or a tier that fails; then nothing has changed.
            Bounded: by `SUMMARY_S_MAX`, `PAGES_MAX` and the tokens that the user has left.
        """
        messages_max = self._settings.assistant.context_messages_max
        old = choose_old(said, memory, room_of(persona, memory), messages_max)
        if not old:
            return
        try:
            async with asyncio.timeout(SUMMARY_S_MAX):
                await self._budgets.check(session.user, session.chat)
                old = [*await self._read_before(session, said[0].seq, memory), *old]
                await self._summarize(session, persona, old, memory)
        except RateLimited:
            return
        except (ChatError, TimeoutError) as exc:
            metrics.SUMMARIES.labels("failed").inc()
            log.warning("assistant.summary_failed", chat=session.chat, error=str(exc))

    async def _read_before(
        self, session: CompanionSession, first: int, memory: Memory | None
    ) -> list[Utterance]:
        """Return what lies between the memory and the newest page; as a rule nothing."""
        upto = 0 if memory is None else memory.upto
        found: list[Utterance] = []
        for _ in range(PAGES_MAX):
            if first <= upto + 1:
                break
            ask = frames.History(0, session.chat, before=first, limit=frames.PAGE_MAX)
            page = await self._history.get_page(session.user, ask)
            messages = [codec.decode_message(json) for json in page.messages]
            if not messages:
                break
            first = messages[0].seq
            found = [*hear(messages, session.companion), *found]
        return [one for one in found if one.seq > upto]

    async def _summarize(
        self,
        session: CompanionSession,
        persona: Companion,
        old: Sequence[Utterance],
        memory: Memory | None,
    ) -> None:
        """Write a summary of the memory and of `old`, as far as it takes so many parts."""
        text = "" if memory is None else memory.text
        upto, spent = 0, 0
        room = max(PART_TOKENS_MIN, persona.context_tokens_max // 2)
        parts = split_parts(old, room)[:PARTS_MAX]
        try:
            for part in parts:
                text, tokens = await self._ask(persona, text, part)
                upto, spent = part[-1].seq, spent + tokens
        finally:
            # A part that was made is paid, whatever became of the next one.
            if spent:
                with contextlib.suppress(ChatError):
                    await self._budgets.settle(session.user, session.chat, "", spent)
        failpoint("assistant.before_summary")
        first = old[0].seq if memory is None else memory.first
        rev = 1 if memory is None else memory.rev + 1
        if text and await self._summaries.put(
            session.chat, Memory(Seq(first), Seq(upto), text, rev)
        ):
            metrics.SUMMARIES.labels("written").inc()

    async def _ask(
        self, persona: Companion, before: str, part: Sequence[Utterance]
    ) -> tuple[str, int]:
        """Return the summary of what is remembered and of `part`, and the tokens that it cost."""
        tokens_max = self._settings.assistant.summary_tokens_max
        words = int(tokens_max * WORDS_PER_TOKEN)
        lines = "\n".join(f"{one.role}: {one.text}" for one in part)
        question = (BEFORE.format(text=before) if before else "") + lines
        ask = Ask(
            persona.model,
            SUMMARIZE.format(words=words),
            (Said("user", question),),
            tokens_max,
        )
        bounds = self._settings.chats.body_bounds
        provider = await self._providers.get_provider(persona.provider)
        text, how = "", Spoken("broken")
        async with contextlib.aclosing(
            speak(provider, ask, self._pace, bounds, self._clock)
        ) as pieces:
            async for piece in pieces:
                if isinstance(piece, Delta):
                    text += piece.text
                else:
                    how = piece
        text = cut_to_tokens(clean_body(text, bounds).strip(), tokens_max)
        if how.end not in ("done", "length") or not text:
            raise ChatError(f"the model ended a summary with {how.end}")
        tokens_in = how.tokens_in or estimate_tokens(ask.system) + estimate_tokens(question)
        return text, tokens_in + (how.tokens_out or estimate_tokens(text))


def split_parts(said: Sequence[Utterance], room: int) -> list[list[Utterance]]:
    """Return what was said in parts of at most `room` tokens, or of one message that is longer."""
    parts: list[list[Utterance]] = []
    left = 0
    for one in said:
        if not parts or one.tokens > left:
            parts.append([])
            left = room
        parts[-1].append(one)
        left -= one.tokens
    return parts
