"""Commands of the client SDK that use the HTTP API: files, preferences, pins, social graph."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from chatserver.client.http.files import FilesApi
from chatserver.client.http.social import SocialApi
from chatserver.client.model import Entry, parse_entry
from chatserver.client.server_calls import ServerCalls
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol.frames import Attachment, ChatPreferences, PinnedChats


class PreferencesPage(NamedTuple):
    """Chat preferences. `next`: the `after` argument for the next page, or None."""

    preferences: list[ChatPreferences]
    next: str | None


class LinkPreview(msgspec.Struct, frozen=True):
    """Preview of a web page, from its meta tags. `picture` is a path of the HTTP API, or None."""

    url: str
    title: str
    description: str
    site: str
    picture: str | None


class UserResult(msgspec.Struct, frozen=True):
    """A user that a search found; `name` is the display name."""

    user: str
    name: str | None
    about: str | None


class PinnedMessage(NamedTuple):
    """A pinned message. `pinned_at` is in Unix milliseconds."""

    message: Entry
    pinned_at: int


class PinsPage(NamedTuple):
    """Pinned messages, newest message first. `next`: the `after` argument for the next page."""

    pins: list[PinnedMessage]
    next: str | None


class HttpCalls(ServerCalls):
    """Commands that use the HTTP API.

    Raises:
        BadRequest: the client has no `api_url`.
        ClientError: the request is invalid or not permitted.
        Unavailable: not done in time; the same call, with the same `ref`, may succeed later.
    """

    def _apply_preferences(self, preferences: Sequence[ChatPreferences]) -> None:
        """Apply preferences that the server returned."""

    @property
    def social(self) -> SocialApi:
        """Follows, posts, timelines and favorites."""
        return SocialApi(self._get_http_api())

    async def upload(
        self,
        chat: str,
        source: str | Path | bytes,
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002  # the field name of attachments
    ) -> Attachment:
        """Upload a file by path or as bytes; return an attachment for `send`. See `FilesApi`."""
        return await self._get_files_api().upload(chat, source, name, type)

    async def download(
        self, attachment: Attachment | str, *, seq: int | None = None, is_thumb: bool = False
    ) -> bytes:
        """Return the content of a file in message `seq`, or of its thumbnail. See `FilesApi`."""
        file = attachment if isinstance(attachment, str) else attachment.id
        return await self._get_files_api().download(file, seq, is_thumb=is_thumb)

    async def describe(self, attachment: Attachment | str, *, seq: int | None = None) -> Attachment:
        """Return the current metadata of a file in message `seq`, such as a new thumbnail."""
        file = attachment if isinstance(attachment, str) else attachment.id
        return await self._get_files_api().describe(file, seq)

    async def search_users(self, text: str, *, limit: int = 20) -> list[UserResult]:
        """Return users who match `text` and allow others to find them (docs/accounts.md)."""
        page = await self._get_http_api().get("/v1/user-search", q=text, limit=limit)
        return msgspec.convert(page["items"], list[UserResult])

    async def link_preview(self, url: str) -> LinkPreview | None:
        """Return the preview of a web page that a message links to; None if there is none.

        Raises:
            Unavailable: the server is busy or does not respond; the same call may succeed later.
            RateLimited: the user has requested too many previews.
        """
        try:
            preview = await self._get_http_api().get("/v1/link-preview", url=url)
        except NotFound:
            return None
        return msgspec.convert(preview, LinkPreview)

    async def chat_preferences(self, chat: str) -> ChatPreferences:
        """Return the user's preferences for a chat (docs/chat-preferences.md)."""
        return await self._request_preferences("GET", _build_preferences_path(chat))

    async def list_chat_preferences(
        self, *, after: str | None = None, limit: int = 50
    ) -> PreferencesPage:
        """Return a page of chat preferences, without chats that have only default values."""
        api = self._get_http_api()
        page = await api.get("/v1/me/chat-preferences", limit=limit, cursor=after)
        preferences = msgspec.convert(page["items"], list[ChatPreferences])
        self._apply_preferences(preferences)
        return PreferencesPage(preferences, page["next"])

    async def update_chat_preferences(self, chat: str, **changes: Any) -> ChatPreferences:
        """Change the user's preferences for a chat, such as `archived=True`; return all of them.

        A `draft` is a dict of `text` and `version`.
        """
        return await self._request_preferences("PATCH", _build_preferences_path(chat), changes)

    async def clear_chat(self, chat: str, *, upto: int | None = None) -> ChatPreferences:
        """Clear a chat for the user, on all devices: up to seq `upto`, or its newest known entry.

        Raises:
            BadRequest: `upto` is not given, and the chat is not loaded.
        """
        if upto is None:
            cached = self._state.chats.get(chat)
            if cached is None:
                raise BadRequest(f"upto: required, because chat {chat} is not loaded")
            upto = cached.top
        return await self.update_chat_preferences(chat, cleared_upto=upto)

    async def pinned_chats(self) -> PinnedChats:
        """Return the chats that the user has pinned to the top of the chat list, in order."""
        return msgspec.convert(await self._get_http_api().get("/v1/me/pinned-chats"), PinnedChats)

    async def set_pinned_chats(
        self, chats: Sequence[str], *, if_rev: int | None = None
    ) -> PinnedChats:
        """Replace the pinned chats.

        Raises:
            Conflict: `if_rev` is given, and the pinned chats have changed since.
        """
        body = {"chats": list(chats), "if_rev": if_rev}
        return msgspec.convert(
            await self._get_http_api().request("PUT", "/v1/me/pinned-chats", body), PinnedChats
        )

    async def pin(self, chat: str, seq: int, *, ref: str | None = None) -> None:
        """Pin a message for all members. In a group, only the owner and admins may pin."""
        await self._get_http_api().request("PUT", _build_pin_path(chat, seq, ref))

    async def unpin(self, chat: str, seq: int, *, ref: str | None = None) -> None:
        """Unpin a message. No error if it is not pinned."""
        await self._get_http_api().request("DELETE", _build_pin_path(chat, seq, ref))

    async def pins(self, chat: str, *, after: str | None = None, limit: int = 50) -> PinsPage:
        """Return a page of the messages pinned in a chat."""
        path = f"/v1/chats/{_quote(chat)}/pins"
        page = await self._get_http_api().get(path, limit=limit, cursor=after)
        pins = [
            PinnedMessage(parse_entry(pin["message"]), pin["pinned_at"]) for pin in page["items"]
        ]
        return PinsPage(pins, page["next"])

    async def _request_preferences(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> ChatPreferences:
        response = await self._get_http_api().request(method, path, body)
        preferences = msgspec.convert(response, ChatPreferences)
        self._apply_preferences([preferences])
        return preferences

    def _get_files_api(self) -> FilesApi:
        return FilesApi(self._get_http_api())


def _build_preferences_path(chat: str) -> str:
    return f"/v1/chats/{_quote(chat)}/preferences"


def _build_pin_path(chat: str, seq: int, ref: str | None) -> str:
    query = "" if ref is None else f"?{urllib.parse.urlencode({'ref': ref})}"
    return f"/v1/chats/{_quote(chat)}/pins/{seq}{query}"


def _quote(chat: str) -> str:
    return urllib.parse.quote(chat, safe="")
