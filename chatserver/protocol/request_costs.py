"""Request costs of frames and HTTP routes, in tokens of `limits.requests_*`.

A token is about one cheap call to Redis or DynamoDB. The gateway charges the cost of the frame. The
API charges `compute_route_cost` before it reads the body. If it then builds a frame from the body,
it also charges the frame's cost above `BASE`. A search that takes much CPU time is also charged
afterward (`compute_search_charge`). Sends have a separate limit. `docs/limits.md` lists
these costs.

Invariant: no request costs more than `REQUEST_COST_MAX`, and the burst of `limits.requests` is at
least `REQUEST_COST_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from chatserver.protocol import frames

REQUEST_COST_MAX = 64
BASE = 1
SEARCH = 10  # a search, or a list that reads many chats
CPU_MS_PER_TOKEN = 4  # CPU time of a search that one token pays for
LINK_PREVIEW = 5  # a link preview: requests to another server, unless it is cached
CHANGE = 4  # a change to a chat: a transaction, and the events that notify members
USERS_PER_TOKEN = 4  # invited users that one token pays for
ITEMS_PER_TOKEN = 50  # items of a page that one token pays for
# Chats of a page that one token pays for; few, because listing loads idle chats.
CHATS_PER_TOKEN = 10


def _by_members(frame: frames.CreateChat) -> int:
    return CHANGE + len(frame.members) // USERS_PER_TOKEN


class PageRequest(Protocol):
    """A frame that requests a page of at most `limit` items."""

    @property
    def limit(self) -> int: ...


def by_limit(frame: PageRequest) -> int:
    """Return the cost of a request for a page."""
    return BASE + frame.limit // ITEMS_PER_TOKEN


def _by_results(frame: frames.Search) -> int:
    return SEARCH + frame.limit // ITEMS_PER_TOKEN


def _by_watched(frame: frames.Watch) -> int:
    return BASE + len(frame.users) // ITEMS_PER_TOKEN


def _by_chats(frame: frames.Chats) -> int:
    return BASE + frame.limit // CHATS_PER_TOKEN


Cost = int | Callable[[Any], int]

# Other frames cost what their declaration says (`chatserver.requests`), or else `BASE`.
FRAME_COSTS: dict[type, Cost] = {
    frames.CreateChat: _by_members,
    frames.OpenDirect: CHANGE,
    frames.History: by_limit,
    frames.Sync: by_limit,
    frames.Chats: _by_chats,
    frames.Search: _by_results,
    frames.Watch: _by_watched,
}

# Routes not listed here cost `BASE`. The query parameter `limit` adds ``limit // ITEMS_PER_TOKEN``
# tokens; for /v1/chats, ``limit // CHATS_PER_TOKEN``. The total is at most `REQUEST_COST_MAX`.
ROUTE_COSTS: dict[tuple[str, str], int] = {
    ("PUT", "/v1/direct-chats/{user:str}"): CHANGE,
    ("PATCH", "/v1/chats/{chat:str}"): CHANGE,
    ("PATCH", "/v1/chats/{chat:str}/members/{user:str}"): CHANGE,
    ("DELETE", "/v1/chats/{chat:str}/members/{user:str}"): CHANGE,
    ("POST", "/v1/chats/{chat:str}/join"): CHANGE,
    ("POST", "/v1/chats/{chat:str}/leave"): CHANGE,
    ("PUT", "/v1/chats/{chat:str}/members/{user:str}/mute"): CHANGE,
    ("PUT", "/v1/chats/{chat:str}/bans/{user:str}"): CHANGE,
    ("DELETE", "/v1/chats/{chat:str}/bans/{user:str}"): CHANGE,
    ("PATCH", "/v1/me"): CHANGE,
    ("PUT", "/v1/me/blocks/{user:str}"): CHANGE,
    ("DELETE", "/v1/me/blocks/{user:str}"): CHANGE,
    ("POST", "/v1/companions/{companion:str}/session"): CHANGE,
    ("POST", "/v1/companions/{companion:str}/session/renewal"): CHANGE,
    ("DELETE", "/v1/companions/{companion:str}/session"): CHANGE,
    ("PUT", "/v1/companion-sessions/{chat:str}/version"): CHANGE,
    ("PUT", "/v1/me/following/{user:str}"): CHANGE,
    ("DELETE", "/v1/me/following/{user:str}"): CHANGE,
    ("POST", "/v1/me/posts"): CHANGE,
    ("POST", "/v1/me/export"): REQUEST_COST_MAX,
    ("GET", "/v1/search"): SEARCH,
    ("GET", "/v1/user-search"): SEARCH,
    ("GET", "/v1/me/messages"): SEARCH,
    ("GET", "/v1/me/sent"): SEARCH,
    ("GET", "/v1/me/received"): SEARCH,
    ("GET", "/v1/link-preview"): LINK_PREVIEW,
    ("GET", "/v1/link-preview/picture"): LINK_PREVIEW,
}


def compute_route_cost(method: str, path: str, limit: str | None) -> int:
    """Return the cost of an HTTP request in tokens.

    `path` is the route pattern. `limit` is the raw query parameter; an invalid value is rejected
    later.
    """
    cost = ROUTE_COSTS.get((method, path), BASE)
    items = int(limit) if limit and limit.isascii() and limit.isdigit() and len(limit) < 6 else 0
    per_token = CHATS_PER_TOKEN if path == "/v1/chats" else ITEMS_PER_TOKEN
    return min(cost + items // per_token, REQUEST_COST_MAX)


def compute_search_charge(cpu_s: float) -> int:
    """Return the tokens to charge after a search, for CPU time that `SEARCH` does not cover."""
    return max(0, int(cpu_s * 1000 / CPU_MS_PER_TOKEN) - SEARCH)
