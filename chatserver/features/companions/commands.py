"""Requests about AI responses, and the budget check of `send`.

A message to a companion is an ordinary message. The sender's token budget is checked before the
message is accepted, so the reply to `send` reports an exhausted budget. Responses are created in
`chatserver.features.companions.worker.assistant_worker`.
"""

from __future__ import annotations

import attrs
import msgspec
import structlog

from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import RateLimited, Unavailable
from chatserver.features.companions.frames import JoinResponse, ResponseText, StopResponse
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.protocol import frames

log = structlog.get_logger()


@attrs.define(eq=False, repr=False, kw_only=True)
class CompanionCommands:
    """Checks the budget for messages to companions, stops responses, and returns their text."""

    _budgets: TokenBudgets
    _references: HotMembership
    _streams: ResponseStream
    _members: MemberCheck

    async def check_budget(self, user: UserId, frame: frames.Send) -> None:
        """Check that the user's token budget allows a message to a companion now.

        Guarantees:
            If the message has already been committed, a retry is accepted.
            If the budget cannot be read, the message is allowed; without Redis, its commit fails.

        Raises:
            RateLimited: too many responses are in progress, or the day's tokens are used up.
                `retry_after_ms` is the time to wait.
        """
        chat = ChatId(frame.chat)
        try:
            await self._budgets.check(user, chat)
        except RateLimited:
            if await self._references.find_digest(chat, user, Ref(frame.ref)) is None:
                raise
        except Unavailable as exc:
            log.warning("companion_budget.check_failed", error=exc.message)

    async def stop(self, user: UserId, frame: StopResponse) -> frames.Ok:
        """Stop the response in progress, if any.

        Guarantees:
            Idempotent. The request remains in effect even if the worker crashes.

        Raises:
            NotFound: no such chat, or the user is not a member.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        if is_session_chat(chat):
            await self._streams.stop(chat)
        return frames.Ok(frame.id)

    async def join(self, user: UserId, frame: JoinResponse) -> ResponseText:
        """Return the current text of the response in progress, or the text of the last response.

        Guarantees:
            The reply has the text up to chunk `index`. Together with the later chunks (signals
            `ai.delta` with a higher `index`), it is the whole response.

        Raises: the same as `stop`.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        stream = await self._streams.find(chat) if is_session_chat(chat) else None
        if stream is None:
            return ResponseText(id=frame.id, chat=chat, turn="", seq=0, index=0, text="")
        end = stream.end or msgspec.UNSET
        return ResponseText(
            id=frame.id,
            chat=chat,
            turn=stream.response_id,
            seq=stream.seq,
            index=stream.index,
            text=stream.text,
            end=end,
        )
