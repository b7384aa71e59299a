"""Signing keys of the host application, fetched from a URL, cached in Redis and refreshed.

::

    URL ◄── KeyFetcher (api, worker rpc) ──► copy in Redis ◄── HostKeyring (every process) ─► tokens

A gateway makes no outbound requests; it reads the copy in Redis. If the copy is too old or lacks
the key that a token names, the gateway calls `workers.rpc`.

Keys are fetched every `JWKS_TTL_S`, or sooner if a token names an unknown key, but only once per
`JWKS_REFETCH_S` across all processes. While the URL does not respond, the last keys stay in use for
up to a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs
import structlog

from chatserver.config import Auth
from chatserver.domain.clock import Clock
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, CorruptData, Unavailable
from chatserver.hot.jwks_cache import JwksCache
from chatserver.task_groups import wait_for_shared

log = structlog.get_logger()

JWKS_TTL_S = 300
JWKS_REFETCH_S = 10  # minimum time between two fetches, across all processes

STALE_S = 86_400


@attrs.define(eq=False, repr=False, kw_only=True)
class KeyFetcher:
    """Fetches and caches the key set. `check` raises CorruptData if the body is not a key set."""

    _settings: Auth
    _cache: JwksCache
    _fetch: Callable[[str], Awaitable[bytes]]
    _check: Callable[[bytes], object]
    _clock: Clock

    async def get(self) -> bytes:
        """Fetch and return the key set.

        Returns the copy in Redis if the fetch fails, or if any process tried to fetch the key set
        less than `JWKS_REFETCH_S` ago.

        Guarantees:
            Bounded: one request per `JWKS_REFETCH_S`, across all processes.
            An invalid response never replaces a valid key set.

        Raises:
            Unavailable: the key set cannot be fetched now, and Redis has no copy.
        """
        url = self._settings.host_jwks_url
        assert url is not None
        if await self._cache.claim_fetch(JWKS_REFETCH_S):
            try:
                body = await self._fetch(url)
                self._check(body)
            except ChatError as exc:
                log.warning("host_keys.fetch_failed", url=url, error=exc.message)
            else:
                await self._cache.put(self._clock.time(), body)
                return body
        copy = await self._cache.find()
        if copy is None:
            raise Unavailable("signing keys of the host application cannot be fetched; try again")
        return copy.body


@attrs.define(eq=False, repr=False, kw_only=True)
class HostKeyring:
    """One process's key set. `fetch` returns the current key set; `activate` puts it into use."""

    _settings: Auth
    _cache: JwksCache
    _fetch: Callable[[], Awaitable[bytes]]
    _activate: Callable[[bytes | None], None]
    _clock: Clock
    _body: bytes | None = attrs.field(default=None, init=False)
    _confirmed_at: float = attrs.field(
        default=float("-inf"), init=False
    )  # when the active keys were last known to be current
    _refreshed_at: float = attrs.field(default=float("-inf"), init=False)
    _refreshing: asyncio.Task[bool] | None = attrs.field(default=None, init=False)

    async def check_for_newer(self) -> bool:
        """Check for newer keys when a token names an unknown key; return True if keys changed.

        Guarantees:
            Bounded: one check per `JWKS_REFETCH_S`, shared by concurrent callers.
            Cancellation: safe; the check continues for the other callers.
        """
        if self._settings.host_jwks_url is None:
            return False
        if self._refreshing is None:
            now = self._clock.monotonic()
            if now - self._refreshed_at < JWKS_REFETCH_S:
                return False
            self._refreshed_at = now
            self._refreshing = asyncio.create_task(
                self._refresh(is_urgent=True), name="host-keys-refresh"
            )
            self._refreshing.add_done_callback(self._end_refresh)
        return await wait_for_shared(self._refreshing)

    def _end_refresh(self, task: asyncio.Task[bool]) -> None:
        self._refreshing = None

    async def _refresh(self, *, is_urgent: bool) -> bool:
        """Load and activate the current keys; return True if the keys have changed."""
        before = self._body
        try:
            copy = await self._cache.find()
            age_s = float("inf") if copy is None else self._clock.time() - copy.fetched_at
            if copy is not None and copy.body != before and age_s < JWKS_TTL_S:
                self._activate_keys(copy.body)  # another process has already fetched newer keys
            elif is_urgent or age_s >= JWKS_TTL_S:
                self._activate_keys(await self._fetch())
            elif copy is not None:
                self._activate_keys(copy.body)
        except ChatError as exc:
            log.warning("host_keys.refresh_failed", error=exc.message)
            if self._clock.monotonic() - self._confirmed_at > STALE_S and self._body is not None:
                self._body = None
                self._activate(None)
        return self._body != before and self._body is not None

    def _activate_keys(self, body: bytes) -> None:
        if body != self._body:
            try:
                self._activate(body)
            except CorruptData as exc:
                log.error("host_keys.invalid", error=exc.message)
                return
            self._body = body
            log.info("host_keys.refreshed")
        self._confirmed_at = self._clock.monotonic()

    async def run(self) -> None:
        """Refresh the keys until cancelled; do nothing if no URL is configured."""
        if self._settings.host_jwks_url is None:
            return
        while True:
            is_new = await self._refresh(is_urgent=False)
            is_urgent = self._body is None and not is_new
            await asyncio.sleep(add_jitter(1.0 if is_urgent else JWKS_TTL_S / 2, 0.8))
