"""What users ask of companions, beside the messages themselves: may I, stop, what did you say?

A message to a companion is an ordinary one; before it is taken, the budget of its sender is looked
at, so that who has none left hears it as the answer to `send`. The companion's side is in
`workers.assistant`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import structlog

from chatserver.domain.companions import is_session_chat
from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.errors import RateLimited, Unavailable
from chatserver.protocol import frames

log = structlog.get_logger()


class Budgets(Protocol):
    """What users may have of models."""

    async def check(self, user: UserId, chat: ChatId) -> None:
        """Raises RateLimited."""


class References(Protocol):
    """What was done under which reference."""

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None: ...


class Answers(Protocol):
    """The answers that are being made."""

    async def find(self, chat: ChatId) -> AnswerSoFar | None: ...

    async def stop(self, chat: ChatId) -> Seq: ...


class AnswerSoFar(Protocol):
    """What was said so far: pieces 0 to `index`."""

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
    """Says who may read. Raises NotFound."""

    async def get_reader(self, chat: ChatId, user: UserId) -> object: ...


class Asking:
    """The use cases."""

    def __init__(
        self, budgets: Budgets, references: References, answers: Answers, members: MemberCheck
    ) -> None:
        self._budgets = budgets
        self._references = references
        self._answers = answers
        self._members = members

    @staticmethod
    def is_asked(chat: str) -> bool:
        """Say whether a message to this chat has to be admitted first."""
        return is_session_chat(chat)

    async def admit(self, user: UserId, frame: frames.Send) -> None:
        """See that the user may ask a companion something now.

        Guarantees:
            What was committed is not refused: a retry of it is let through.
            While the budget cannot be read it is no obstacle: the message meets Redis itself.

        Raises:
            RateLimited: too many answers are being made for the user, or the tokens of the day are
                used up; `retry_after_ms` says when that is over.
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
        """End the answer that is being made; where none is, nothing happens.

        Guarantees:
            Idempotent. It outlives the worker that makes the answer.

        Raises:
            NotFound: no such chat, or the user is not a member.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        if is_session_chat(chat):
            await self._answers.stop(chat)
        return frames.Ok(frame.id)

    async def join(self, user: UserId, frame: frames.JoinTurn) -> frames.Turn:
        """Return what was said so far of the answer that is being made, or was just made.

        Guarantees:
            Exact: with the signals above `index`, in order, it is the whole answer.

        Raises: as `stop`.
        """
        chat = ChatId(frame.chat)
        await self._members.get_reader(chat, user)
        found = await self._answers.find(chat) if is_session_chat(chat) else None
        if found is None:
            return frames.Turn(frame.id, chat, "", 0, 0, "")
        end = found.end or msgspec.UNSET
        return frames.Turn(frame.id, chat, found.turn, found.seq, found.index, found.text, end)
