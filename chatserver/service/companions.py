"""Companions: who there is to talk to, and what each is told to be.

Operators manage them (an API key with the scope, or the command line), everybody may see who there
is. A companion is never changed: what is called an update is its next version, and sessions that go
on keep theirs until they are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.companions import (
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    CONTEXT_TOKENS_MIN,
    MODEL_CHARS_MAX,
    NAME_CHARS_MAX,
    PREFIX,
    PROMPT_CHARS_MAX,
    Changes,
    Companion,
    CompanionId,
    CompanionSession,
    is_companion,
    is_session_chat,
    parse_companion_id,
)
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.domain.text import parse_name
from chatserver.errors import BadRequest, NotFound, TooLarge


class Rows(Protocol):
    """Companions in the directory."""

    async def create(self, companion: Companion) -> None: ...

    async def update(
        self, companion: CompanionId, changes: Changes, now_ms: int, before: int | None = None
    ) -> Companion: ...

    async def delete(self, companion: CompanionId, now_ms: int) -> None: ...

    async def get_newest(self, companion: CompanionId) -> Companion: ...

    async def get_companion(self, companion: CompanionId, version: int) -> Companion: ...

    async def list_page(
        self, *, limit: int, after: CompanionId | None = None
    ) -> tuple[list[Companion], CompanionId | None]: ...


class Companions:
    """The use cases of who manages them, and of who looks."""

    def __init__(self, rows: Rows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock

    async def create(self, id_: str | None, wanted: Changes) -> Companion:
        """Make a companion; without an id it gets one.

        Raises:
            BadRequest, TooLarge: something is absent or out of its bound.
            Conflict: there is one of this id, or was.
        """
        companion = parse_companion_id(f"{PREFIX}{new_id().lower()}" if id_ is None else id_, "id")
        checked = check(wanted)
        if checked.name is None or checked.provider is None or checked.model is None:
            raise BadRequest("name, provider, model: must be given")
        base = Companion(companion, 0, "", "", checked.provider, "", 8_192, 1_024, 0)
        made = checked.apply(base, self._now_ms())
        _check_together(made)
        await self._rows.create(made)
        return made

    async def update(
        self, companion: CompanionId, wanted: Changes, before: int | None = None
    ) -> Companion:
        """Make the next version of a companion; `before`: only if that is the newest one.

        Raises:
            BadRequest, TooLarge: something is out of its bound, or nothing is to be changed.
            NotFound: there is no such companion.
            Conflict: the newest version is another one than `before`.
        """
        checked = check(wanted)
        if checked == Changes():
            raise BadRequest("companion: nothing is to be changed")
        newest = await self._rows.get_newest(companion)
        _check_together(checked.apply(newest, 0))
        return await self._rows.update(companion, checked, self._now_ms(), before)

    async def delete(self, companion: CompanionId) -> None:
        """Let nobody begin with a companion any more. Idempotent. Raises NotFound.

        What was said stays; in sessions that go on, its users are told that it is gone.
        """
        await self._rows.delete(companion, self._now_ms())

    async def get(self, companion: CompanionId, version: int | None = None) -> Companion:
        """Return a version, deleted or not, or the newest one of one that is there.

        Raises:
            NotFound: there is none.
        """
        if version is None:
            return await self._rows.get_newest(companion)
        return await self._rows.get_companion(companion, version)

    async def list_page(
        self, after: CompanionId | None, limit: int
    ) -> tuple[list[Companion], CompanionId | None]:
        """Return a page of who there is, by id, and the id after which the next one begins."""
        return await self._rows.list_page(limit=limit, after=after)

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)


class Sessions(Protocol):
    """Sessions, from their chats."""

    async def find_by_chat(self, chat: ChatId) -> CompanionSession | None: ...

    async def find(
        self, user: UserId, companion: CompanionId, chat: ChatId
    ) -> CompanionSession | None: ...


class ChatMembers(Protocol):
    """Who is in a chat, in the directory. Raises NotFound if there is no such chat."""

    async def list_members(self, chat: str) -> Sequence[Any]: ...


class Book:
    """What the assistant looks up: `chatserver.domain.companions.CompanionBook`."""

    def __init__(self, rows: Rows, sessions: Sessions, members: ChatMembers) -> None:
        self._rows = rows
        self._sessions = sessions
        self._members = members

    async def get_companion(self, companion: CompanionId, version: int) -> Companion:
        """Return a version of a companion, deleted or not. Consistent. Raises NotFound."""
        return await self._rows.get_companion(companion, version)

    async def find_session_by_chat(self, chat: ChatId) -> CompanionSession | None:
        """Return the session that a chat is, active or old; None: the chat is none.

        Guarantees:
            Consistent, also where the index does not know yet of a session that just began.
            Cost: nothing for a chat of another kind; a Query and a GetItem, seldom twice that.
        """
        if not is_session_chat(chat):
            return None
        found = await self._sessions.find_by_chat(chat)
        if found is not None:
            return found
        try:
            members = [member.user for member in await self._members.list_members(chat)]
        except NotFound:
            return None
        companions = [member for member in members if is_companion(member)]
        users = [member for member in members if not is_companion(member)]
        if not companions or not users:
            return None
        companion = CompanionId(UserId(companions[0]))
        return await self._sessions.find(UserId(users[0]), companion, chat)


def check(wanted: Changes) -> Changes:
    """Return what a version is asked to have, with its texts as they are stored.

    Raises:
        BadRequest, TooLarge: something is out of its bound.
    """
    for field, text, chars_max in (
        ("name", wanted.name, NAME_CHARS_MAX),
        ("prompt", wanted.prompt, PROMPT_CHARS_MAX),
        ("model", wanted.model, MODEL_CHARS_MAX),
    ):
        if text is not None and len(text) > chars_max:
            raise TooLarge(f"{field}: must be at most {chars_max} characters")
    if wanted.model is not None and not (wanted.model.isascii() and wanted.model.isprintable()):
        raise BadRequest("model: must be printable ASCII")
    if wanted.model == "":
        raise BadRequest("model: must not be empty")
    _check_tokens("context_tokens_max", wanted.context_tokens_max, CONTEXT_TOKENS_MIN)
    _check_tokens("answer_tokens_max", wanted.answer_tokens_max, 1, ANSWER_TOKENS_MAX)
    return Changes(
        name=None if wanted.name is None else parse_name(wanted.name),
        prompt=None if wanted.prompt is None else wanted.prompt.strip(),
        provider=wanted.provider,
        model=wanted.model,
        context_tokens_max=wanted.context_tokens_max,
        answer_tokens_max=wanted.answer_tokens_max,
    )


def _check_tokens(
    field: str, tokens: int | None, least: int, most: int = CONTEXT_TOKENS_MAX
) -> None:
    if tokens is not None and not least <= tokens <= most:
        raise BadRequest(f"{field}: must be {least} to {most}")


def _check_together(companion: Companion) -> None:
    """An answer has to fit behind what it answers."""
    if companion.answer_tokens_max >= companion.context_tokens_max:
        raise BadRequest("answer_tokens_max: must be less than context_tokens_max")
