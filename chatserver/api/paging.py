"""Pagination: lists accept ``?limit=&cursor=`` and return ``{"items": […], "next": …}``.

A handler takes ``page: PageOf``, reads from `PageQuery.open`, and returns `PageQuery.build`. A
cursor is valid only for the same list and caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency, Provide
from litestar.params import QueryParameter

from chatserver.auth.page_cursors import Cursors
from chatserver.protocol.frames import CURSOR_CHARS_MAX, PAGE_MAX
from chatserver.warm.dynamo.paging import Token

T = TypeVar("T")
Info = TypeVar("Info")
SortKey = tuple[int, str]

Limit = Annotated[
    int,
    QueryParameter(ge=1, le=PAGE_MAX, required=False, description="maximum number of items"),
]
Cursor = Annotated[
    str | None,
    QueryParameter(
        max_length=CURSOR_CHARS_MAX,
        required=False,
        description="the `next` value of the previous page; default: the first page",
    ),
]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. `next` is the cursor of the next page, null on the last page."""

    items: list[T]
    next: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageQuery:
    """The page that a request asks for. `scope` identifies the list and the caller."""

    cursors: Cursors
    scope: str
    limit: int
    cursor: str | None

    def narrow(self, *filters: object) -> PageQuery:
        """Return the query for a list with these filters: its cursors are valid only with them."""
        return dataclasses.replace(self, scope=f"{self.scope} {filters}")

    def open(self, kind: type[T]) -> T | None:
        """Return the position after which the page starts; None: the start of the list.

        Raises:
            BadRequest: the cursor was not issued for this list and caller.
        """
        return self.cursors.open(self.scope, self.cursor, kind)

    @property
    def start(self) -> Token | None:
        """The DynamoDB key after which the page starts; see `open`."""
        return self.open(dict[str, str | int])

    def build(self, items: Iterable[T], position: Any) -> Page[T]:
        """Return the page. The next page starts after `position`; None: this is the last page."""
        return Page(list(items), self.cursors.sign(self.scope, position))

    def slice(
        self, items: Iterable[T], get_key: Callable[[T], SortKey], describe: Callable[[T], Info]
    ) -> Page[Info]:
        """Return the page of a list that is given whole, in any order.

        `get_key` returns an item's sort key, which must not change when other items are inserted or
        deleted. `describe` returns an item's representation in the response.

        Raises:
            BadRequest: the cursor was not issued for this list and caller.
        """
        after = self.open(tuple[int, str])
        remaining = [item for item in items if after is None or get_key(item) > after]
        page = sorted(remaining, key=get_key)[: self.limit]
        last = get_key(page[-1]) if len(remaining) > self.limit else None
        return self.build(map(describe, page), last)


def make_page_provider(cursors: Cursors) -> Provide:
    """Return the dependency `page` of handlers."""

    async def provide_page(
        request: Request[Any, Any, Any], limit: Limit = 50, cursor: Cursor = None
    ) -> PageQuery:
        principal = request.state.principal
        scope = f"{request.scope['path']} for {principal.user or principal.name}"
        return PageQuery(cursors=cursors, scope=scope, limit=limit, cursor=cursor)

    return Provide(provide_page)


# Parameter type for handlers.
PageOf = NamedDependency[PageQuery]
