"""API keys of the host application, which uses chatserver: create, authenticate, rotate, revoke."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chatserver.auth.api_keys import (
    REFUSED,
    SCOPES,
    format_key,
    hash_secret,
    is_secret,
    new_secret,
    parse_key,
)
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.domain.text_validation import parse_name
from chatserver.errors import BadRequest, NotFound, Unauthenticated
from chatserver.warm.api_keys import KeyRow, StoredApiKeys

CACHE_S = 2.0  # how long a key is cached; for up to this time, a revoked key is accepted
# How long a cached key is reused if the secret does not match; the key may have been rotated.
RELOAD_S = 0.5
CACHE_MAX = 1_000
OVERLAP_S_MAX = 604_800


class ApiKeys:
    """API key use cases, with a cache per process."""

    def __init__(self, rows: StoredApiKeys, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._cache: dict[str, tuple[float, KeyRow | None]] = {}

    async def create(self, name: str, scopes: Collection[str]) -> tuple[str, str]:
        """Create a key. Return its id and the complete key, which is not stored.

        Raises:
            BadRequest: `scopes` is empty or has an unknown scope.
        """
        if not scopes or not set(scopes) <= set(SCOPES):
            raise BadRequest(f"scopes: must be one or more of {', '.join(SCOPES)}")
        key, secret = new_id().lower(), new_secret()
        await self._rows.create(
            KeyRow(
                key=key,
                name=parse_name(name),
                created_ms=self._now_ms(),
                scopes=frozenset(scopes),
                digest=hash_secret(secret),
            )
        )
        return key, format_key(key, secret)

    async def list_all(self) -> Sequence[KeyRow]:
        """Return all keys without their secrets, which are not stored."""
        return await self._rows.list_all()

    async def rotate(self, key: str, overlap_s: int) -> str:
        """Replace a key's secret. Return the new key; the old secret stays valid for `overlap_s`.

        Raises:
            NotFound: the key does not exist or has been revoked.
            BadRequest: the overlap is longer than a week.
            Conflict: another request rotated the key at the same time.
        """
        if not 0 <= overlap_s <= OVERLAP_S_MAX:
            raise BadRequest(f"overlap: must be 0 to {OVERLAP_S_MAX} seconds")
        row = await self._rows.find(key)
        if row is None or row.ended_ms is not None:
            raise NotFound("API key does not exist or is revoked")
        secret = new_secret()
        until = int(self._clock.time()) + overlap_s
        await self._rows.rotate(row, hash_secret(secret), until)
        return format_key(key, secret)

    async def revoke(self, key: str) -> None:
        """Revoke a key. Processes that cached it reject it within `CACHE_S`. Raises NotFound."""
        await self._rows.end(key, self._now_ms())

    async def authenticate(self, text: str) -> KeyRow:
        """Return the stored key that matches a request's key.

        Guarantees:
            Cost: one DynamoDB read per `CACHE_S` for a valid key, one per `RELOAD_S` for an invalid
                key.

        Raises:
            Unauthenticated: the key is invalid or revoked.
            Unavailable: DynamoDB does not respond.
        """
        key = parse_key(text)
        for age_s in (CACHE_S, RELOAD_S):
            row = await self._find(key.id, age_s)
            if row is not None and row.ended_ms is None and self._is_match(key.secret, row):
                return row
        raise Unauthenticated(REFUSED)

    def _is_match(self, secret: str, row: KeyRow) -> bool:
        is_old_match = (
            row.old_digest is not None
            and self._clock.time() < row.old_until
            and is_secret(secret, row.old_digest)
        )
        return is_secret(secret, row.digest) or is_old_match

    async def _find(self, key: str, age_s: float) -> KeyRow | None:
        now = self._clock.monotonic()
        cached = self._cache.get(key)
        if cached is not None and now - cached[0] < age_s:
            return cached[1]
        row = await self._rows.find(key)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()  # a full cache has mostly invalid ids, because valid keys are few
        self._cache[key] = (now, row)
        return row

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)
