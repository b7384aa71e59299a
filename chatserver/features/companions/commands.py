"""User requests about AI responses: budget check before `send`, stop, and join.

A message to a companion is an ordinary message. The sender's token budget is checked before the
message is accepted, so an exhausted budget is the reply to `send`. Responses are created in
`chatserver.features.companions.worker.assistant`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import structlog

from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.errors import RateLimited, Unavailable
from chatserver.protocol import frames

log = structlog.get_logger()


class Budgets(Protocol):
    """Token budgets of users."""

    async def check(self, user: UserId, chat: ChatId) -> None:
        """Raises RateLimited if the budget is exhausted."""


class References(Protocol):
    """Digests of committed messages by sender and reference."""

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None: ...


class Answers(Protocol):
    """Responses in progress."""

    async def find(self, chat: ChatId) -> AnswerSoFar | None: ...

    async def stop(self, chat: ChatId) -> Seq: ...


class AnswerSoFar(Protocol):
    """Text of a response so far: deltas 0 to `index`."""

    @property
    def turn(self) -> str: ...
    @property
    def seq(self) -> Seq: ...
    @property
    def index(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def end(self) -> str: ...


class MemberCheck(Protocol):
    """Read access to chats. Raises NotFound."""

    async def get_reader(self, chat: ChatId, user: UserId) -> object: ...


class CompanionRequests:
    """Use cases for messages to companions."""

    def __init__(
        self, budgets: Budgets, references: References, answers: Answers, members: MemberCheck
    ) -> None:
        self._budgets = budgets
        self._references = references
        self._answers = answers
        self._members = members

    @staticmethod
    def is_asked(chat: str) -> bool:
        """Return whether messages to this chat need a budget check."""
        return is_session_chat(chat)

    async def admit(self, user: UserId, frame: frames.Send) -> None:
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
            log.warning("asking.budget_unknown", error=exc.message)

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
            await self._answers.stop(chat)
        return frames.Ok(frame.id)

    async def join(self, user: UserId, frame: frames.JoinTurn) -> frames.Turn:
        """Return the text so far of the response in progress, or of the last one.

        Guarantees:
            Exact: together with the signals above `index`, in order, it is the whole response.

        Raises: as `stop`.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        found = await self._answers.find(chat) if is_session_chat(chat) else None
        if found is None:
            return frames.Turn(frame.id, chat, "", 0, 0, "")
        end = found.end or msgspec.UNSET
        return frames.Turn(frame.id, chat, found.turn, found.seq, found.index, found.text, end)
