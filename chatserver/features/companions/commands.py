"""User requests about AI responses: budget check before `send`, stop, and join.

A message to a companion is an ordinary message. The sender's token budget is checked before the
message is accepted, so an exhausted budget is the reply to `send`. Responses are created in
`chatserver.features.companions.worker.assistant`.
"""

from __future__ import annotations

import msgspec
import structlog

from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import RateLimited, Unavailable
from chatserver.features.companions.hot.response_stream import Deltas
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.protocol import frames

log = structlog.get_logger()


class CompanionRequests:
    """Use cases for messages to companions."""

    def __init__(
        self,
        *,
        budgets: TokenBudgets,
        references: HotMembership,
        streams: Deltas,
        members: MemberCheck,
    ) -> None:
        self._budgets = budgets
        self._references = references
        self._streams = streams
        self._members = members

    @staticmethod
    def needs_budget_check(chat: str) -> bool:
        """Return whether messages to this chat need a budget check."""
        return is_session_chat(chat)

    async def check_budget(self, user: UserId, frame: frames.Send) -> None:
        """Check that the user may send a message to a companion now.

        Guarantees:
            A retry of a committed message is accepted.
            If the budget cannot be read, the message is accepted here; its commit needs Redis
            anyway.

        Raises:
            RateLimited: too many responses are in progress, or the day's tokens are used up; the
            error's `retry_after_ms` is the time until the limit resets.
        """
        chat = ChatId(frame.chat)
        try:
            await self._budgets.check(user, chat)
        except RateLimited:
            if await self._references.find_digest(chat, user, Ref(frame.ref)) is None:
                raise
        except Unavailable as exc:
            log.warning("companion_budget.check_failed", error=exc.message)

    async def stop(self, user: UserId, frame: frames.StopTurn) -> frames.Ok:
        """Stop the response in progress, if any.

        Guarantees:
            Idempotent. The request survives the worker that creates the response.

        Raises:
            NotFound: no such chat, or the user is not a member.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        if is_session_chat(chat):
            await self._streams.stop(chat)
        return frames.Ok(frame.id)

    async def join(self, user: UserId, frame: frames.JoinTurn) -> frames.Turn:
        """Return the text so far of the response in progress, or of the last one.

        Guarantees:
            Exact: together with the signals above `index`, in order, it is the whole response.

        Raises: as `stop`.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        found = await self._streams.find(chat) if is_session_chat(chat) else None
        if found is None:
            return frames.Turn(frame.id, chat, "", 0, 0, "")
        end = found.end or msgspec.UNSET
        return frames.Turn(
            frame.id, chat, found.response_id, found.seq, found.index, found.text, end
        )
