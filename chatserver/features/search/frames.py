"""Frames of searches."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chatserver.protocol.frames import (
    CURSOR_CHARS_MAX,
    ClientFrame,
    Message,
    RequestId,
    ServerFrame,
    raw_list,
)

QUERY_CHARS_MAX = 500
RESULTS_MAX = 50
RESULTS_DEFAULT = 20


class Search(ClientFrame, tag="search", frozen=True):
    """Finds messages in the user's chats by their words; `docs/search.md` describes `q`.

    `after` is the `next` of the previous page.
    """

    id: RequestId
    q: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARS_MAX)]
    order: Literal["newest", "relevance"] = "newest"
    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=RESULTS_MAX)] = RESULTS_DEFAULT


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a search result's snippet, as plain text. `hit`: this part matches the query."""

    text: str
    hit: bool = False


class SearchResult(msgspec.Struct, frozen=True):
    """A matching message. `snippet` is an excerpt of its text, split into plain-text segments."""

    message: Message
    snippet: list[Segment]


class SearchPage(ServerFrame, tag="page", frozen=True):
    """Response to `search`. A page with a `next` may have fewer results than `limit`, or none."""

    id: int
    results: Annotated[list[msgspec.Raw], raw_list(SearchResult)]
    more: bool
    next: str | None = None
