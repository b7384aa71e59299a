"""AI companion commands of the client SDK: list companions and manage sessions.

A stateless mixin, like `chatserver.client.moderation_calls`; the server enforces the rules
(docs/companions.md). A session has a chat; send messages to it as to any other chat.
"""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

from chatserver.client.chat import Chat
from chatserver.client.request_queue import Fields
from chatserver.client.server_calls import ServerCalls
from chatserver.domain.ids import new_id


class Companion(NamedTuple):
    """An AI companion; `id` is its user id in chats, `version` its newest version."""

    id: str
    name: str
    version: int


class Session(NamedTuple):
    """A companion session; times are in Unix milliseconds. An ended session is read-only."""

    companion: str
    chat: str
    ai_version: int
    create_time: int
    delete_time: int | None = None


class MemoryEntry(NamedTuple):
    """A memory of a companion: a fact, or the summary of a session (`kind`).

    `chats` are the sessions it comes from; times are in Unix milliseconds.
    """

    id: str
    kind: str
    text: str
    chats: list[str]
    created: int
    updated: int
    expires: int


class Memory(NamedTuple):
    """A companion's memories of the user, newest first; if `enabled`, it uses and updates them."""

    companion: str
    enabled: bool
    entries: list[MemoryEntry]


class CompanionsPage(NamedTuple):
    """Companions, sorted by id. `next`: the `after` argument for the next page, or None."""

    companions: list[Companion]
    next: str | None


class SessionsPage(NamedTuple):
    """Companion sessions, active first. `next`: the `after` argument for the next page."""

    sessions: list[Session]
    next: str | None


class CompanionCalls(ServerCalls):
    """Companion commands, which wait for the response and may be repeated with the same `ref`.

    Raises:
        Conflict: a session is active (the message names its chat), or the session has ended.
        ClientError: the request is invalid or not permitted.
        Unavailable: no response in time; the same call may succeed later.
    """

    async def companions(self, *, after: str | None = None, limit: int = 50) -> CompanionsPage:
        """Return a page of the available companions."""
        page = await self._call("companions", after=after, limit=limit)
        return CompanionsPage(
            [Companion(**companion) for companion in page["companions"]], page.get("next")
        )

    async def create_session(self, companion: str, *, ref: str | None = None) -> Chat:
        """Start a companion session and return its chat."""
        return await self._request_chat("create_session", companion=companion, ref=ref or new_id())

    async def get_session(self, companion: str) -> Chat:
        """Return the chat of the active companion session. Raises NotFound if there is none."""
        return await self._request_chat("get_session", companion=companion)

    async def renew_session(self, companion: str, *, ref: str | None = None) -> Chat:
        """End the active session, start a new one, and return the new session's chat."""
        return await self._request_chat("renew_session", companion=companion, ref=ref or new_id())

    async def delete_session(
        self, companion: str, *, chat: str | None = None, forget: bool = False
    ) -> Session:
        """End the active companion session; with `chat`, only if `chat` is the session's chat.

        With `forget`, the companion also forgets what it remembers from this session.
        """
        return await self._request_session(
            "delete_session", companion=companion, chat=chat, forget=forget
        )

    async def update_session(self, chat: str, *, version: int | None = None) -> Session:
        """Change the companion version that a session uses, by default to the newest version."""
        return await self._request_session("update_session", chat=chat, version=version)

    async def sessions(
        self, companion: str | None = None, *, after: str | None = None, limit: int = 50
    ) -> SessionsPage:
        """Return a page of the sessions with `companion`, or with all companions; newest first."""
        page = await self._call("sessions", companion=companion, after=after, limit=limit)
        return SessionsPage([Session(**session) for session in page["sessions"]], page.get("next"))

    # Memory across sessions. Requires `api_url`.

    async def memory(self, companion: str) -> Memory:
        """Return what a companion remembers about the user across sessions."""
        return _parse_memory(await self._get_http_api().get(_build_memory_path(companion)))

    async def set_memory_enabled(self, companion: str, enabled: bool) -> Memory:
        """Enable or disable memory. While disabled, the companion neither uses nor updates it."""
        path, body = _build_memory_path(companion), {"enabled": enabled}
        return _parse_memory(await self._get_http_api().request("PATCH", path, body))

    async def delete_memory(
        self, companion: str, *, entry: str | None = None, chat: str | None = None
    ) -> None:
        """Delete memories: one entry, the memories of one session (`chat`), or all."""
        path = _build_memory_path(companion)
        if entry is not None:
            path += f"/{urllib.parse.quote(entry, safe='')}"
        elif chat is not None:
            path += f"?{urllib.parse.urlencode({'chat': chat})}"
        await self._get_http_api().request("DELETE", path)

    async def _request_session(self, type_: str, **fields: object) -> Session:
        return Session(**(await self._call(type_, **fields))["session"])


def _build_memory_path(companion: str) -> str:
    return f"/v1/me/companions/{urllib.parse.quote(companion, safe='')}/memory"


def _parse_memory(fields: Fields) -> Memory:
    entries = [MemoryEntry(**entry) for entry in fields["entries"]]
    return Memory(fields["companion"], fields["enabled"], entries)
