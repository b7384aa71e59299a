"""Pagination: lists accept ``?limit=&cursor=`` and return ``{"items": […], "next": …}``.

`chatserver.auth.page_cursors` signs the cursors.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec
from litestar.params import QueryParameter

from chatserver.protocol.frames import CURSOR_CHARS_MAX, PAGE_MAX

T = TypeVar("T")

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
