"""Pinned messages of the client SDK: pin, unpin and list, over the HTTP API.

A stateless mixin, like `chatserver.client.calls`; the server enforces the rules (docs/pins.md).
"""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

from chatserver.client.model import Entry, parse_entry
from chatserver.client.server_calls import ServerCalls


class PinnedMessage(NamedTuple):
    """A pinned message. `pinned_at` is in Unix milliseconds."""

    message: Entry
    pinned_at: int


class PinsPage(NamedTuple):
    """Pinned messages, newest message first. `next`: the `after` argument for the next page."""

    pins: list[PinnedMessage]
    next: str | None


class PinCalls(ServerCalls):
    """Pin commands. A call returns when the change has taken effect, and may be repeated.

    Raises:
        BadRequest: the client has no `api_url`.
        ClientError: the request is invalid or not permitted.
        Unavailable: not done in time; the same call, with the same `ref`, may succeed later.
    """

    async def pin(self, chat: str, seq: int, *, ref: str | None = None) -> None:
        """Pin a message for all members. In a group, only the owner and admins may pin."""
        await self._get_http_api().request("PUT", _build_path(chat, seq, ref))

    async def unpin(self, chat: str, seq: int, *, ref: str | None = None) -> None:
        """Unpin a message. No error if it is not pinned."""
        await self._get_http_api().request("DELETE", _build_path(chat, seq, ref))

    async def pins(self, chat: str, *, after: str | None = None, limit: int = 50) -> PinsPage:
        """Return a page of the messages pinned in a chat."""
        path = f"/v1/chats/{_quote(chat)}/pins"
        page = await self._get_http_api().get(path, limit=limit, cursor=after)
        pins = [
            PinnedMessage(parse_entry(pin["message"]), pin["pinned_at"]) for pin in page["items"]
        ]
        return PinsPage(pins, page["next"])


def _build_path(chat: str, seq: int, ref: str | None) -> str:
    query = "" if ref is None else f"?{urllib.parse.urlencode({'ref': ref})}"
    return f"/v1/chats/{_quote(chat)}/pins/{seq}{query}"


def _quote(chat: str) -> str:
    return urllib.parse.quote(chat, safe="")
