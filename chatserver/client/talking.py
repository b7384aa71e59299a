"""What an application can ask about AI companions: who there is, and sessions with them.

A mixin without state, like `chatserver.client.moderating`; the rules are the server's
(docs/companions.md). What is said in a session is said in its chat, as in any other.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from chatserver.client.chat import Chat
from chatserver.client.requests import Fields
from chatserver.client.state import ANSWER_S
from chatserver.domain.ids import new_id


class Companion(NamedTuple):
    """Somebody to talk to; `id` is a user id in chats, `version` the newest one."""

    id: str
    name: str
    version: int


class Session(NamedTuple):
    """A session with a companion; times in milliseconds since 1970. One that ended is only read."""

    companion: str
    chat: str
    ai_version: int
    create_time: int
    delete_time: int | None = None


class CompanionsPage(NamedTuple):
    """Who there is, by id. `next` is the `after` of the next page, None on the last."""

    companions: list[Companion]
    next: str | None


class SessionsPage(NamedTuple):
    """Our sessions, active ones first. `next` is the `after` of the next page, None on the last."""

    sessions: list[Session]
    next: str | None


class Talking(abc.ABC):
    """The commands. Each waits until it is done, and may be repeated with the same `ref`.

    Raises:
        Conflict: a session is active, whose chat it names; or it is not active any more.
        ClientError: the caller has to mend it, or may not do it.
        Unavailable: not done in time; the same call may work later.
    """

    @abc.abstractmethod
    async def _ask(self, fields: Fields, deadline_s: float) -> Fields:
        """Return the answer to a request."""

    @abc.abstractmethod
    async def _ask_chat(self, fields: Fields) -> Chat:
        """Return the chat that the answer to a request is about."""

    async def companions(self, *, after: str | None = None, limit: int = 50) -> CompanionsPage:
        """Return which companions there are."""
        place = {} if after is None else {"after": after}
        page = await self._ask({"type": "companions", "limit": limit, **place}, ANSWER_S)
        return CompanionsPage([Companion(**each) for each in page["companions"]], page.get("next"))

    async def create_session(self, companion: str, *, ref: str | None = None) -> Chat:
        """Begin a session, and return its chat."""
        fields = {"type": "create_session", "companion": companion, "ref": ref or new_id()}
        return await self._ask_chat(fields)

    async def get_session(self, companion: str) -> Chat:
        """Return the chat of the active session. Raises NotFound if there is none."""
        return await self._ask_chat({"type": "get_session", "companion": companion})

    async def renew_session(self, companion: str, *, ref: str | None = None) -> Chat:
        """End the active session and begin another; return its chat."""
        fields = {"type": "renew_session", "companion": companion, "ref": ref or new_id()}
        return await self._ask_chat(fields)

    async def delete_session(self, companion: str, *, chat: str | None = None) -> Session:
        """End the active session; with `chat`, only if it is that one."""
        which = {} if chat is None else {"chat": chat}
        return await self._ask_session({"type": "delete_session", "companion": companion, **which})

    async def update_session(self, chat: str, *, version: int | None = None) -> Session:
        """Let another version of the companion answer: the newest, unless told."""
        which = {} if version is None else {"version": version}
        return await self._ask_session({"type": "update_session", "chat": chat, **which})

    async def sessions(
        self, companion: str | None = None, *, after: str | None = None, limit: int = 50
    ) -> SessionsPage:
        """Return our sessions; of one companion the newest first."""
        fields: dict[str, Any] = {"companion": companion, "after": after}
        given = {name: value for name, value in fields.items() if value is not None}
        page = await self._ask({"type": "sessions", "limit": limit, **given}, ANSWER_S)
        return SessionsPage([Session(**each) for each in page["sessions"]], page.get("next"))

    async def _ask_session(self, fields: Fields) -> Session:
        return Session(**(await self._ask(fields, ANSWER_S))["session"])
