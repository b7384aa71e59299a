"""API keys of the host application: creation, authentication, rotation and revocation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.domain.text import parse_name
from chatserver.errors import BadRequest, NotFound, Unauthenticated

CACHE_S = 2.0  # how long a revoked key may still be accepted
RELOAD_S = 0.5  # a mismatching key may have been rotated since it was cached
CACHE_MAX = 1_000
OVERLAP_S_MAX = 604_800


class AnyKeyRow(Protocol):
    """An API key as stored."""

    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def scopes(self) -> frozenset[str]: ...
    @property
    def digest(self) -> str: ...
    @property
    def old_digest(self) -> str | None: ...
    @property
    def old_until(self) -> int: ...
    @property
    def ended_ms(self) -> int | None: ...


class Rows(Protocol):
    """Storage of API keys."""

    async def create(self, row: Any) -> None: ...

    async def find(self, key: str) -> AnyKeyRow | None: ...

    async def list_all(self) -> Sequence[AnyKeyRow]: ...

    async def rotate(self, row: Any, digest: str, old_until: int) -> None: ...

    async def end(self, key: str, now_ms: int) -> None: ...


class AnyApiKey(Protocol):
    """A key as the caller presents it, split into id and secret."""

    @property
    def id(self) -> str: ...
    @property
    def secret(self) -> str: ...


@dataclasses.dataclass(frozen=True, slots=True)
class KeyCodec:
    """Functions that create and check keys; see `chatserver.auth.api_keys`."""

    scopes: Collection[str]
    parse: Callable[[str], AnyApiKey]
    new_secret: Callable[[], str]
    digest_of: Callable[[str], str]
    is_secret: Callable[[str, str], bool]
    format: Callable[[str, str], str]
    make_row: Callable[..., AnyKeyRow]


class ApiKeys:
    """API key use cases of one process."""

    def __init__(self, rows: Rows, craft: KeyCodec, clock: Clock) -> None:
        self._rows = rows
        self._craft = craft
        self._clock = clock
        self._known: dict[str, tuple[float, AnyKeyRow | None]] = {}

    async def create(self, name: str, scopes: Collection[str]) -> tuple[str, str]:
        """Create a key; return its id and the key itself, which cannot be read again.

        Raises:
            BadRequest: the key has no scope, or an unknown one.
        """
        unknown = sorted(set(scopes) - set(self._craft.scopes))
        if unknown or not scopes:
            raise BadRequest(f"scopes: must be among {', '.join(self._craft.scopes)}")
        key, secret = new_id().lower(), self._craft.new_secret()
        row = self._craft.make_row(
            key=key,
            name=parse_name(name),
            created_ms=self._now_ms(),
            scopes=frozenset(scopes),
            digest=self._craft.digest_of(secret),
        )
        await self._rows.create(row)
        return key, self._craft.format(key, secret)

    async def list_all(self) -> Sequence[AnyKeyRow]:
        """Return all keys without their secrets, which are not stored."""
        return await self._rows.list_all()

    async def rotate(self, key: str, overlap_s: int) -> str:
        """Replace a key's secret and return the new key; the old one stays valid for `overlap_s`.

        Raises:
            NotFound: there is no such key, or it was revoked.
            BadRequest: the overlap is longer than a week.
            Conflict: the key was rotated concurrently.
        """
        if not 0 <= overlap_s <= OVERLAP_S_MAX:
            raise BadRequest(f"overlap: must be 0 to {OVERLAP_S_MAX} seconds")
        row = await self._rows.find(key)
        if row is None or row.ended_ms is not None:
            raise NotFound("API key: does not exist")
        secret = self._craft.new_secret()
        until = int(self._clock.time()) + overlap_s
        await self._rows.rotate(row, self._craft.digest_of(secret), until)
        return self._craft.format(key, secret)

    async def revoke(self, key: str) -> None:
        """Revoke a key. Processes that cached it reject it within `CACHE_S`. Raises NotFound."""
        await self._rows.end(key, self._now_ms())

    async def authenticate(self, text: str) -> AnyKeyRow:
        """Return the stored key that matches a presented one.

        Guarantees:
            Cost: one directory read per `CACHE_S` for a valid key, per `RELOAD_S` for an invalid
            one.

        Raises:
            Unauthenticated: the key is invalid or revoked.
            Unavailable: the directory does not respond.
        """
        shown = self._craft.parse(text)
        for age_s in (CACHE_S, RELOAD_S):
            row = await self._find(shown.id, age_s)
            if row is not None and row.ended_ms is None and self._fits(shown.secret, row):
                return row
        raise Unauthenticated("API key: does not hold")

    def _fits(self, secret: str, row: AnyKeyRow) -> bool:
        is_old_right = (
            row.old_digest is not None
            and self._clock.time() < row.old_until
            and self._craft.is_secret(secret, row.old_digest)
        )
        return self._craft.is_secret(secret, row.digest) or is_old_right

    async def _find(self, key: str, age_s: float) -> AnyKeyRow | None:
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < age_s:
            return known[1]
        row = await self._rows.find(key)
        if len(self._known) >= CACHE_MAX:
            self._known.clear()  # mostly ids that do not exist
        self._known[key] = (now, row)
        return row

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)
