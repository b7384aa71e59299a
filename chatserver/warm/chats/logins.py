"""Users' logins, bans and token revocations, in table `directory`.

| record  | `PK`       | `SK`             | attributes                                            |
|---------|------------|------------------|-------------------------------------------------------|
| `Login` | `u#<user>` | `device#<login>` | `name? created seen seed generation rotated ended?    |
|         |            |                  | expires_at`                                           |

A login is a device that has logged in. Its refresh tokens are not stored: they are computed from
`seed` (random bytes), `generation` and a secret key (`chatserver.auth.refresh_token_format`).
The item of an ended login is kept, without its seed, until the last of its tokens expires: if Redis
loses the revocations, they are restored from these items.

Invariant: a conditional write increments `generation` with each token issued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from chatserver.domain.access.logins import Login
from chatserver.errors import CorruptData, NotFound
from chatserver.warm.chats.directory_items import USER, User, user_key
from chatserver.warm.chats.restriction_flag import mark_restricted
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr, Changes
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

LOGIN_PREFIX = "device#"
AFTER_LOGINS = "device$"  # '$' follows '#'
LOGINS_READ_MAX: Final = 2_000
_ENDS_IN_FLIGHT_MAX: Final = 16

LOGIN: Final = Codec(
    Login,
    "u#{user}",
    LOGIN_PREFIX + "{login}",
    created_ms=Field.CREATED,
    seen_ms=Field.SEEN,
    seed=StoredField(Field.SEED, absent=""),
    generation=Field.GENERATION,
    rotated_ms=Field.ROTATED,
    expires_at=Field.EXPIRES_AT,
    name=Field.NAME,
    ended_ms=Field.ENDED,
)
# The user exists and has not been erased.
IS_ACTIVE: Final = Attr(Field.PK).exists & Attr(Field.ERASED).is_absent


class Logins:
    """Repository of logins. Times are in milliseconds since 1970 unless documented otherwise."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)

    # Users.

    async def find_user(self, user: str) -> User | None:
        """Return a user, even if erased; None if there is none. Strongly consistent."""
        item = await self._table.find((user_key(user), user_key(user)))
        return None if item is None else USER.decode(item)

    async def restrict_user(
        self, user: str, *, before: int | None = None, banned_ms: int | None = None
    ) -> None:
        """Ban a user, or revoke the tokens issued up to `before` (s) that belong to no login.

        Raises:
            NotFound: the user does not exist.
        """
        changes = {Field.BEFORE: before, Field.BANNED: banned_ms}
        await self._update_user(
            user, {name: value for name, value in changes.items() if value is not None}
        )

    async def remove_ban(self, user: str) -> None:
        """Remove a user's ban. Raises NotFound."""
        await self._update_user(user, {Field.BANNED: None})

    async def _update_user(self, user: str, changes: Changes) -> None:
        try:
            await self._table.update((user_key(user), user_key(user)), changes, if_=IS_ACTIVE)
        except ConditionFailed:
            raise NotFound(f"user {user}: does not exist") from None

    # Logins.

    async def create_login(self, login: Login) -> bool:
        """Store a new login; return False if another login has its id. Idempotent."""
        is_own = Attr(Field.PK).is_absent | (Attr(Field.SEED) == login.seed)
        return await try_write(self._table.put(LOGIN.encode(login), if_=is_own))

    async def find_login(self, user: str, login: str) -> Login | None:
        """Return a login, even if it has ended; None if there is none. Strongly consistent."""
        item = await self._table.find(LOGIN.key(user=user, login=login))
        return None if item is None else LOGIN.decode(item)

    async def list_logins(self, user: str) -> list[Login]:
        """Return all stored logins of a user, including ended ones. Strongly consistent.

        Raises:
            CorruptData: the user has more than `LOGINS_READ_MAX` logins.
        """
        span = Span(DIRECTORY, user_key(user), between=(LOGIN_PREFIX, AFTER_LOGINS))
        logins: list[Login] = []
        async with self._client.deadline():
            async for items in self._table.iter_query(span):
                logins += map(LOGIN.decode, items)
                if len(logins) > LOGINS_READ_MAX:
                    raise CorruptData(f"user {user}: has more than {LOGINS_READ_MAX} logins")
        return logins

    async def rotate(self, login: Login, now_ms: int, expires_at: int) -> bool:
        """Record that the next refresh token is issued.

        Return False if another request has already issued it, or if the login has ended. A retry
        after a lost response also returns False; read the login again.
        """
        is_newest = (Attr(Field.GENERATION) == login.generation) & Attr(Field.ENDED).is_absent
        changes: Changes = {
            Field.GENERATION: login.generation + 1,
            Field.ROTATED: now_ms,
            Field.SEEN: now_ms,
            Field.EXPIRES_AT: expires_at,
        }
        key = LOGIN.key(user=login.user, login=login.login)
        return await try_write(self._table.update(key, changes, if_=is_newest))

    async def end_logins(self, user: str, logins: Collection[str], now_ms: int, until: int) -> None:
        """End logins, and keep their items until time `until` (Unix s).

        Idempotent. Unknown logins are ignored.

        Raises:
            Unavailable: some logins may not have been ended.
        """
        names = sorted(logins)
        if names:
            await mark_restricted(self._table, user)
        is_live = Attr(Field.PK).exists & Attr(Field.ENDED).is_absent
        changes: Changes = {Field.ENDED: now_ms, Field.EXPIRES_AT: until, Field.SEED: None}

        async def end(login: str) -> None:
            key = LOGIN.key(user=user, login=login)
            await try_write(self._table.update(key, changes, if_=is_live))

        for start in range(0, len(names), _ENDS_IN_FLIGHT_MAX):
            some = names[start : start + _ENDS_IN_FLIGHT_MAX]
            # A failure does not stop the others: as many logins as possible end at once.
            for outcome in await asyncio.gather(*map(end, some), return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
