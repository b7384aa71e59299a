"""Link previews: fetches pages and pictures that users' messages link to.

Users choose the URLs, so each request and each redirect must pass the address check in
`chatserver.outbound`. The setting `outbound.allow_private` does not apply. A fetch that fails has
the same result as a page without a preview, whatever the reason, so users learn nothing about the
server's network. The only exception: if too many fetches are running, the request fails with
`Overloaded`, and nothing is cached.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import attrs
import structlog
from yarl import URL

from chatserver.config import Outbound as OutboundSettings
from chatserver.domain.access.caller import CALLER
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, NotFound, Overloaded, Unavailable
from chatserver.features.link_previews.hot import PreviewCache
from chatserver.features.link_previews.model import (
    CACHE_BYTES,
    FETCH_S,
    FETCHES_MAX,
    FETCHES_OF_USER_MAX,
    FETCHES_WAITING_MAX,
    PAGE_BYTES_MAX,
    PICTURE_BYTES_MAX,
    REDIRECTS_MAX,
    WAIT_S,
    PageSummary,
    PreviewPicture,
    detect_picture_type,
)
from chatserver.features.link_previews.page_head import parse_page
from chatserver.hot.users.token_buckets import TOO_MUCH, RateLimits
from chatserver.outbound.allowed_destinations import parse_url
from chatserver.outbound.http_client import Answer, Lookup, open_outbound, system_lookup
from chatserver.service.fair_semaphore import FairSemaphore

log = structlog.get_logger()

NO_PREVIEW: Final = "url: there is no preview for this page"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})


class PageFetcher:
    """Fetches pages and pictures. `lookup` resolves host names."""

    def __init__(self, settings: OutboundSettings, lookup: Lookup = system_lookup) -> None:
        self._settings = settings
        self._lookup = lookup
        self._slots = FairSemaphore(
            total_max=FETCHES_MAX,
            user_max=FETCHES_OF_USER_MAX,
            waiting_max=FETCHES_WAITING_MAX,
            requests="link previews",
        )

    async def fetch_page(self, url: str, payer: str = "") -> PageSummary:
        """Return the summary of a page; empty if the page cannot be fetched now.

        Guarantees:
            Fair: `payer` (a user, or a network of new accounts) delays other payers little.
            Bounded: ends within `WAIT_S` + `FETCH_S`, follows up to `REDIRECTS_MAX` redirects, and
                reads up to `PAGE_BYTES_MAX` of each response.

        Raises:
            Overloaded: too many pages are being fetched.
            RateLimited: too many pages are being fetched for `payer`.
        """
        response = await self._fetch(
            url, payer, "text/html,image/*;q=0.5", PAGE_BYTES_MAX, is_truncated=True
        )
        if response is None:
            return PageSummary()
        http_response, final = response
        if detect_picture_type(http_response.body) is not None:
            return PageSummary(picture=final)
        declared = http_response.headers.get("content-type", "")
        if declared.partition(";")[0].strip().lower() not in _HTML:
            return PageSummary()
        return await asyncio.to_thread(parse_page, http_response.body, declared, final)

    async def fetch_picture(self, url: str, payer: str = "") -> PreviewPicture | None:
        """Return a picture; None if it cannot be fetched now or exceeds `PICTURE_BYTES_MAX`.

        Raises:
            Overloaded, RateLimited: see `fetch_page`.
        """
        response = await self._fetch(url, payer, "image/*", PICTURE_BYTES_MAX, is_truncated=False)
        if response is None:
            return None
        type_ = detect_picture_type(response[0].body)
        return None if type_ is None else PreviewPicture(type_, response[0].body)

    async def _fetch(
        self, url: str, payer: str, accept: str, bytes_max: int, *, is_truncated: bool
    ) -> tuple[Answer, str] | None:
        """Return a successful response and its final URL, or None if the fetch failed."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(WAIT_S):
                    await stack.enter_async_context(self._slots.hold(payer))
            except TimeoutError:
                raise Overloaded(
                    "too many link previews are being fetched; try again later"
                ) from None
            try:
                async with asyncio.timeout(FETCH_S):
                    return await self._fetch_with_redirects(url, accept, bytes_max, is_truncated)
            except (BadRequest, Unavailable, TimeoutError) as exc:
                log.info("link_preview.fetch_failed", error=type(exc).__name__)
                return None

    async def _fetch_with_redirects(
        self, url: str, accept: str, bytes_max: int, is_truncated: bool
    ) -> tuple[Answer, str] | None:
        # Each fetch opens its own HTTP session, so that users never share a connection.
        async with open_outbound(self._settings, self._lookup) as outbound:
            for _ in range(REDIRECTS_MAX + 1):
                response = await outbound.get(
                    url,
                    headers={"Accept": accept},
                    timeout_s=FETCH_S,
                    response_bytes_max=bytes_max,
                    is_truncated=is_truncated,
                )
                if response.status not in _REDIRECTS:
                    return (response, url) if response.is_ok else None
                try:
                    url = str(URL(url).join(URL(response.headers.get("location", ""))))
                except ValueError:
                    return None
        return None


@attrs.define(eq=False, repr=False, kw_only=True)
class LinkPreviews:
    """Returns previews to users, and caches them."""

    _fetcher: PageFetcher
    _cache: PreviewCache
    _limits: RateLimits

    async def get(self, user: UserId, url: str) -> PageSummary:
        """Return the preview of the page at `url`.

        Guarantees:
            Cost: one Redis call if the page's preview is cached; otherwise also one fetch, and
                `CACHE_BYTES` of the user's Redis memory budget.

        Raises:
            BadRequest: the URL is malformed.
            NotFound: there is no preview.
            Overloaded: too many pages are being fetched; nothing is cached.
            RateLimited: the user's Redis memory budget is used up, or too many of the user's
                pages are being fetched.
        """
        plain = _without_fragment(url)
        summary = await self._cache.find(plain)
        if summary is None:
            await self._limits.find("memory", user).pay(TOO_MUCH, CACHE_BYTES)
            summary = await self._fetcher.fetch_page(plain, CALLER.get().queue_key)
            await self._cache.put(plain, summary)
        if summary.is_empty:
            raise NotFound(NO_PREVIEW)
        return summary

    async def get_picture(self, user: UserId, url: str) -> PreviewPicture:
        """Return the picture in the preview of the page at `url`. Raises the errors of `get`."""
        summary = await self.get(user, url)
        picture = None
        if summary.picture:
            picture = await self._fetcher.fetch_picture(summary.picture, CALLER.get().queue_key)
        if picture is None:
            raise NotFound("url: there is no picture for this page")
        return picture


def _without_fragment(url: str) -> str:
    try:
        return str(parse_url(url).with_fragment(None))
    except BadRequest as exc:
        raise BadRequest(f"url: {exc.message}") from exc
