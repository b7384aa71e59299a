"""Request costs of frames and HTTP routes, in tokens of `limits.requests_*`.

A token is about one cheap call to Redis or DynamoDB. The declaration of a request
(`chatserver.requests.operation`) has the cost of its frame and of its route. If the cost depends on
the body, the API charges `BASE` before it reads the body, and the rest afterward. Routes without a
frame cost `compute_route_cost`. A search that takes much CPU time is also charged afterward
(`compute_search_charge`). Sends have a separate limit. `docs/limits.md` lists
these costs.

Invariant: no request costs more than `REQUEST_COST_MAX`, and the burst of `limits.requests` is at
least `REQUEST_COST_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

REQUEST_COST_MAX = 64
BASE = 1
SEARCH = 10  # a search, or a list that reads many chats
CPU_MS_PER_TOKEN = 4  # CPU time of a search that one token pays for
LINK_PREVIEW = 5  # a link preview: requests to another server, unless it is cached
CHANGE = 4  # a change to a chat: a transaction, and the events that notify members
USERS_PER_TOKEN = 4  # invited users that one token pays for
BULK_USERS_MIN = 17  # an invite of so many users, or a new group with so many, is a bulk request
ITEMS_PER_TOKEN = 50  # items of a page that one token pays for
# Chats of a page that one token pays for; few, because listing loads idle chats.
CHATS_PER_TOKEN = 10


class PageRequest(Protocol):
    """A frame that requests a page of at most `limit` items."""

    @property
    def limit(self) -> int: ...


def by_limit(frame: PageRequest) -> int:
    """Return the cost of a request for a page."""
    return BASE + frame.limit // ITEMS_PER_TOKEN


Cost = int | Callable[[Any], int]

# Routes without a declared frame. Those not listed here cost `BASE`. The query parameter `limit`
# adds ``limit // ITEMS_PER_TOKEN`` tokens. The total is at most `REQUEST_COST_MAX`.
ROUTE_COSTS: dict[tuple[str, str], int] = {
    ("PATCH", "/v1/me"): CHANGE,
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
    return min(cost + items // ITEMS_PER_TOKEN, REQUEST_COST_MAX)


def compute_search_charge(cpu_s: float) -> int:
    """Return the tokens to charge after a search, for CPU time that `SEARCH` does not cover."""
    return max(0, int(cpu_s * 1000 / CPU_MS_PER_TOKEN) - SEARCH)
