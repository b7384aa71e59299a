"""Signing keys of the host application, fetched from a URL, cached in Redis and refreshed.

::

    URL ◄── KeyFetcher (api, worker rpc) ──► copy in Redis ◄── KeyRing (every process) ──► tokens

A gateway makes no outbound requests. It reads the copy, and asks `workers.rpc` when the copy is too
old or a token names a key that is not in it. The URL comes from the settings; no part of a token is
used in it.

Keys are fetched every `JWKS_TTL_S`, sooner if a token names a new key, and at most once per
`JWKS_REFETCH_S` over all processes: many invented key names do not cause many requests. While
the URL does not respond, the last keys stay in use for up to a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from chatserver.config import Auth
from chatserver.domain.clock import Clock
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError, CorruptData, Unavailable

log = structlog.get_logger()

JWKS_TTL_S = 300
JWKS_REFETCH_S = 10  # shortest time between two fetches, over all processes

STALE_S = 86_400


class AnyCopy(Protocol):
    """A fetched key set."""

    @property
    def fetched_at(self) -> float: ...
    @property
    def body(self) -> bytes: ...


class Copies(Protocol):
    """Storage of the cached key set."""

    async def find(self) -> AnyCopy | None: ...

    async def put(self, fetched_at: float, body: bytes) -> None: ...

    async def claim_fetch(self, interval_s: int) -> bool: ...


class KeyFetcher:
    """Fetches and caches the key set. `check` raises CorruptData if the body is not a key set."""

    def __init__(
        self,
        settings: Auth,
        copies: Copies,
        fetch: Callable[[str], Awaitable[bytes]],
        check: Callable[[bytes], object],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._copies = copies
        self._fetch = fetch
        self._check = check
        self._clock = clock

    async def get(self) -> bytes:
        """Return the key set, fetched now unless it was fetched a moment ago.

        Guarantees:
            Bounded: one request per `jwks_refetch_s`, over all processes.
            An invalid response never replaces a valid key set.

        Raises:
            Unavailable: no copy exists, and the key set cannot be fetched now.
        """
        url = self._settings.host_jwks_url
        assert url is not None
        if await self._copies.claim_fetch(JWKS_REFETCH_S):
            try:
                body = await self._fetch(url)
                self._check(body)
            except ChatError as exc:
                log.warning("keys.not_fetched", url=url, error=exc.message)
            else:
                await self._copies.put(self._clock.time(), body)
                return body
        copy = await self._copies.find()
        if copy is None:
            raise Unavailable("the keys of the host application cannot be fetched now")
        return copy.body


class KeyRing:
    """The key set of one process. `get` returns a fresh key set; `use` activates one."""

    def __init__(
        self,
        settings: Auth,
        copies: Copies,
        get: Callable[[], Awaitable[bytes]],
        use: Callable[[bytes | None], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._copies = copies
        self._get = get
        self._use = use
        self._clock = clock
        self._body: bytes | None = None
        self._good_at = float("-inf")  # when the active keys were last confirmed
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[bool] | None = None

    async def refetch(self) -> bool:
        """Check for newer keys after a token named an unknown one; return False if there are none.

        Guarantees:
            Bounded: one check per `jwks_refetch_s`; concurrent callers share it.
            Cancellation: safe; the check continues for the other callers.
        """
        if self._settings.host_jwks_url is None:
            return False
        if self._asking is None:
            now = self._clock.monotonic()
            if now - self._asked_at < JWKS_REFETCH_S:
                return False
            self._asked_at = now
            self._asking = asyncio.create_task(self._look(is_urgent=True), name="host-keys-look")
            self._asking.add_done_callback(self._looked)
        return await asyncio.shield(self._asking)

    def _looked(self, task: asyncio.Task[bool]) -> None:
        self._asking = None

    async def _look(self, *, is_urgent: bool) -> bool:
        """Activate newer keys; return True if they differ from the previous ones."""
        before = self._body
        try:
            copy = await self._copies.find()
            age_s = float("inf") if copy is None else self._clock.time() - copy.fetched_at
            if copy is not None and copy.body != before and age_s < JWKS_TTL_S:
                self._take(copy.body)  # another process has fetched them already
            elif is_urgent or age_s >= JWKS_TTL_S:
                self._take(await self._get())
            elif copy is not None:
                self._take(copy.body)
        except ChatError as exc:
            log.warning("keys.not_renewed", error=exc.message)
            if self._clock.monotonic() - self._good_at > STALE_S and self._body is not None:
                self._body = None
                self._use(None)
        return self._body != before and self._body is not None

    def _take(self, body: bytes) -> None:
        if body != self._body:
            try:
                self._use(body)
            except CorruptData as exc:
                log.error("keys.not_readable", error=exc.message)
                return
            self._body = body
            log.info("keys.renewed")
        self._good_at = self._clock.monotonic()

    async def run(self) -> None:
        """Refresh the keys until cancelled; do nothing if no URL is configured."""
        if self._settings.host_jwks_url is None:
            return
        while True:
            found = await self._look(is_urgent=False)
            soon = self._body is None and not found
            await asyncio.sleep(jittered(1.0 if soon else JWKS_TTL_S / 2, 0.8))
