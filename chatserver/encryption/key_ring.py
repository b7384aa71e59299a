"""Key ring: creates, unwraps and caches the data keys of one tenant.

A cached key is used for `encryption.cache_s` seconds after it has been unwrapped. After half of
that time, its next use unwraps it again. A key in regular use therefore survives an outage of KMS
or DynamoDB for up to `cache_s` / 2. The deletion of a key takes effect within `cache_s`.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
import structlog

from chatserver.domain.clock import Clock
from chatserver.encryption.key_wrapping import Context, KeyWrappers, WrappedKey
from chatserver.encryption.value_cipher import VERSION_MAX, DataKey, get_key_version
from chatserver.errors import KEYS_DOWN, Unavailable
from chatserver.telemetry import metrics

log = structlog.get_logger()

CACHED_MAX: Final = 64
RETRY_S: Final = 5.0  # pause after a failed renewal, while the cached key is valid
FAILED_S: Final = 1.0  # after a failure, calls without a cached key fail immediately for this time
_CREATIONS_MAX: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class StoredKey:
    """The row of a data key. `wrapped` is None if the key has been deleted."""

    version: int
    wrapped: WrappedKey | None
    created_ms: int
    deleted_ms: int | None = None


class KeyStore(Protocol):
    """Storage of wrapped data keys. Reads are strongly consistent."""

    async def find(self, version: int) -> StoredKey | None: ...

    async def find_newest(self) -> StoredKey | None: ...

    async def create(self, key: StoredKey) -> bool:
        """Store a new version; return False if it already exists."""


@dataclasses.dataclass(slots=True)
class _Cached:
    key: DataKey | None
    renew_at: float
    ends_at: float


@attrs.define(eq=False, repr=False, kw_only=True)
class KeyRing:
    """The data keys of one tenant. Implements `ValueCipher`."""

    _tenant: str
    _store: KeyStore
    _wrappers: KeyWrappers
    _cache_s: float
    _clock: Clock
    _current: _Cached | None = attrs.field(default=None, init=False)
    _cached: collections.OrderedDict[int, _Cached] = attrs.field(
        factory=collections.OrderedDict, init=False
    )
    _loading: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _failure: tuple[float, str] = attrs.field(factory=lambda: (float("-inf"), ""), init=False)

    def __repr__(self) -> str:
        return f"KeyRing({self._tenant!r})"

    async def get_current(self) -> DataKey:
        """Return the newest key; see `ValueCipher`."""
        cached = self._current
        if cached is None or self._clock.monotonic() >= cached.renew_at:
            async with self._loading:
                cached = self._current
                if cached is None or self._clock.monotonic() >= cached.renew_at:
                    cached = self._current = await self._renew(cached, self._load_current)
        assert cached.key is not None
        return cached.key

    async def find_for(self, data: bytes) -> DataKey | None:
        """Return the key for an encrypted value; see `ValueCipher`."""
        version = get_key_version(data)
        cached = self._cached.get(version)
        if cached is None or self._clock.monotonic() >= cached.renew_at:
            async with self._loading:
                cached = self._cached.get(version)
                if cached is None or self._clock.monotonic() >= cached.renew_at:
                    cached = await self._renew(cached, lambda: self._load(version))
                    self._put(version, cached)
        return cached.key

    async def create_version(self, *, after: int | None = None) -> StoredKey:
        """Create a version of the data key and return its row.

        If a version newer than `after` exists, return that version instead. A process that cannot
        decrypt the newest version has other keys than the deployment, and creates nothing.

        Raises:
            Unavailable: the key cannot be wrapped or stored now, or the newest key not decrypted.
        """
        for _ in range(_CREATIONS_MAX):
            newest = await self._store.find_newest()
            version = 1 if newest is None else newest.version + 1
            if newest is not None and after is not None and newest.version > after:
                return newest
            if newest is not None:
                await self._unwrap(newest)
            if version > VERSION_MAX:
                raise Unavailable(f"encryption: the data key already has {VERSION_MAX:,} versions")
            _, wrapped = await self._wrappers.create(self.build_context(version))
            created = StoredKey(version, wrapped, int(self._clock.time() * 1000))
            if await self._store.create(created):
                log.info("encryption.key_created", version=version, by=wrapped.by)
                return created
        raise Unavailable("encryption: other processes keep creating new data keys; try again")

    async def rewrap(self, key: StoredKey) -> WrappedKey:
        """Return a data key wrapped by the current KMS key or key file. Raises Unavailable."""
        assert key.wrapped is not None
        return await self._wrappers.rewrap(key.wrapped, self.build_context(key.version))

    def build_context(self, version: int) -> Context:
        """Return the context that is authenticated with a wrapped key."""
        return {"tenant": self._tenant or "-", "version": str(version)}

    async def _load_current(self) -> DataKey:
        newest = await self._store.find_newest()
        if newest is None or newest.wrapped is None:
            newest = await self.create_version(after=0 if newest is None else newest.version)
        key = await self._unwrap(newest)
        if key is None:
            raise Unavailable("encryption: the data key has just been deleted; try again")
        return key

    async def _load(self, version: int) -> DataKey | None:
        stored = await self._store.find(version)
        if stored is None:
            # A missing row does not prove that the key was deleted: a restored table can lack it.
            raise Unavailable(f"encryption: data key {version} is missing from the directory table")
        return await self._unwrap(stored)

    async def _unwrap(self, stored: StoredKey) -> DataKey | None:
        if stored.wrapped is None:
            return None
        secret = await self._wrappers.unwrap(stored.wrapped, self.build_context(stored.version))
        return DataKey(self._tenant, stored.version, secret)

    async def _renew(
        self, cached: _Cached | None, load: Callable[[], Awaitable[DataKey | None]]
    ) -> _Cached:
        now = self._clock.monotonic()
        if cached is None and now < self._failure[0]:
            raise Unavailable(self._failure[1], public=KEYS_DOWN)
        try:
            key = await load()
        except Unavailable as exc:
            self._failure = (self._clock.monotonic() + FAILED_S, exc.message)
            metrics.ENCRYPTION_KEY_LOADS.labels("failed").inc()
            if cached is None or now >= cached.ends_at:
                raise
            log.warning("encryption.key_renewal_failed", error=exc.message)
            return _Cached(cached.key, min(now + RETRY_S, cached.ends_at), cached.ends_at)
        metrics.ENCRYPTION_KEY_LOADS.labels("loaded" if key is not None else "deleted").inc()
        return _Cached(key, now + self._cache_s / 2, now + self._cache_s)

    def _put(self, version: int, cached: _Cached) -> None:
        self._cached[version] = cached
        self._cached.move_to_end(version)
        while len(self._cached) > CACHED_MAX:
            self._cached.popitem(last=False)
