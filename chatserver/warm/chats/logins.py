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
import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.access.logins import Login
from chatserver.errors import CorruptData, NotFound
from chatserver.warm.chats import directory_items
from chatserver.warm.chats.directory_items import User
from chatserver.warm.chats.restriction_flag import mark_restricted
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number, get_text
from chatserver.warm.dynamo.items import find_item, iter_pages, write_conditionally
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

LOGIN_PREFIX = "device#"
AFTER_LOGINS = "device$"  # '$' follows '#'
LOGINS_READ_MAX: Final = 2_000
_ENDS_IN_FLIGHT_MAX: Final = 16

Value = str | int | tuple[str, ...]


def encode_login(login: Login) -> Item:
    item = directory_items.row_key(directory_items.user_key(login.user), LOGIN_PREFIX + login.login)
    item[Field.CREATED] = {"N": str(login.created_ms)}
    item[Field.SEEN] = {"N": str(login.seen_ms)}
    item[Field.SEED] = {"S": login.seed}
    item[Field.GENERATION] = {"N": str(login.generation)}
    item[Field.ROTATED] = {"N": str(login.rotated_ms)}
    item[Field.EXPIRES_AT] = {"N": str(login.expires_at)}
    if login.name is not None:
        item[Field.NAME] = {"S": login.name}
    return item


def decode_login(item: Item) -> Login:
    """Decode a login. Raises CorruptData."""
    return Login(
        user=get_text(item, Field.PK).removeprefix("u#"),
        login=get_text(item, Field.SK).removeprefix(LOGIN_PREFIX),
        name=find_text(item, Field.NAME),
        created_ms=get_number(item, Field.CREATED),
        seen_ms=get_number(item, Field.SEEN),
        seed=find_text(item, Field.SEED) or "",
        expires_at=get_number(item, Field.EXPIRES_AT),
        generation=get_number(item, Field.GENERATION),
        rotated_ms=get_number(item, Field.ROTATED),
        ended_ms=find_number(item, Field.ENDED),
    )


class LoginRows:
    """Repository of logins. Times are in milliseconds since 1970 unless documented otherwise."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    # Users.

    async def find_user(self, user: str) -> User | None:
        """Return a user, even if erased; None if there is none. Strongly consistent."""
        item = await self._find(user, directory_items.user_key(user))
        return None if item is None else User.decode(item)

    async def restrict_user(
        self, user: str, *, before: int | None = None, banned_ms: int | None = None
    ) -> None:
        """Ban a user, or revoke the tokens issued up to `before` (s) that belong to no login.

        Raises:
            NotFound: the user does not exist.
        """
        changes: dict[str, str | int | None] = {}
        if before is not None:
            changes[Field.BEFORE] = before
        if banned_ms is not None:
            changes[Field.BANNED] = banned_ms
        await self._update(user, directory_items.user_key(user), changes, subject=f"user {user}")

    async def remove_ban(self, user: str) -> None:
        """Remove a user's ban. Raises NotFound."""
        removed = {Field.BANNED: None}
        await self._update(user, directory_items.user_key(user), removed, subject=f"user {user}")

    # Logins.

    async def create_login(self, login: Login) -> bool:
        """Store a new login; return False if another login has its id. Idempotent."""
        request = {
            "TableName": self._table,
            "Item": encode_login(login),
            "ConditionExpression": "attribute_not_exists(#pk) OR #seed = :seed",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#seed": Field.SEED},
            "ExpressionAttributeValues": {":seed": {"S": login.seed}},
        }
        return await write_conditionally(self._client, "put_item", request)

    async def find_login(self, user: str, login: str) -> Login | None:
        """Return a login, even if it has ended; None if there is none. Strongly consistent."""
        item = await self._find(user, LOGIN_PREFIX + login)
        return None if item is None else decode_login(item)

    async def list_logins(self, user: str) -> list[Login]:
        """Return all stored logins of a user, including ended ones. Strongly consistent.

        Raises:
            CorruptData: the user has more than `LOGINS_READ_MAX` logins.
        """
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#sk": Field.SK},
            "ExpressionAttributeValues": {
                ":pk": {"S": directory_items.user_key(user)},
                ":first": {"S": LOGIN_PREFIX},
                ":last": {"S": AFTER_LOGINS},
            },
            "ConsistentRead": True,
        }
        logins: list[Login] = []
        async with self._client.deadline():
            async for items in iter_pages(self._client, "query", request):
                logins += map(decode_login, items)
                if len(logins) > LOGINS_READ_MAX:
                    raise CorruptData(f"user {user}: has more than {LOGINS_READ_MAX} logins")
        return logins

    async def rotate(self, login: Login, now_ms: int, expires_at: int) -> bool:
        """Record that the next refresh token is issued.

        Return False if another request has already issued it, or if the login has ended. A retry
        after a lost response also returns False; read the login again.
        """
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(
                directory_items.user_key(login.user), LOGIN_PREFIX + login.login
            ),
            "UpdateExpression": (
                "SET #generation = :next, #rotated = :now, #seen = :now, #expires = :expires"
            ),
            "ConditionExpression": "#generation = :this AND attribute_not_exists(#ended)",
            "ExpressionAttributeNames": {
                "#generation": Field.GENERATION,
                "#rotated": Field.ROTATED,
                "#seen": Field.SEEN,
                "#expires": Field.EXPIRES_AT,
                "#ended": Field.ENDED,
            },
            "ExpressionAttributeValues": {
                ":this": {"N": str(login.generation)},
                ":next": {"N": str(login.generation + 1)},
                ":now": {"N": str(now_ms)},
                ":expires": {"N": str(expires_at)},
            },
        }
        return await write_conditionally(self._client, "update_item", request)

    async def end_logins(self, user: str, logins: Collection[str], now_ms: int, until: int) -> None:
        """End logins, and keep their items until time `until` (Unix s).

        Idempotent. Unknown logins are ignored.

        Raises:
            Unavailable: some logins may not have been ended.
        """
        names = sorted(logins)
        if names:
            await mark_restricted(Table(self._client, DIRECTORY), user)
        for start in range(0, len(names), _ENDS_IN_FLIGHT_MAX):
            ends = [
                self._end(user, login, now_ms, until)
                for login in names[start : start + _ENDS_IN_FLIGHT_MAX]
            ]
            # Wait for all calls before raising the first error, so that none is left running.
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _end(self, user: str, login: str, now_ms: int, until: int) -> None:
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(directory_items.user_key(user), LOGIN_PREFIX + login),
            "UpdateExpression": "SET #ended = :now, #expires = :until REMOVE #seed",
            "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#ended)",
            "ExpressionAttributeNames": {
                "#pk": Field.PK,
                "#ended": Field.ENDED,
                "#expires": Field.EXPIRES_AT,
                "#seed": Field.SEED,
            },
            "ExpressionAttributeValues": {
                ":now": {"N": str(now_ms)},
                ":until": {"N": str(until)},
            },
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def _find(self, user: str, sort: str) -> Item | None:
        return await find_item(
            self._client, self._table, directory_items.row_key(directory_items.user_key(user), sort)
        )

    async def _update(
        self, user: str, sort: str, changes: Mapping[str, str | int | None], subject: str
    ) -> Item:
        request = make_update(self._table, directory_items.user_key(user), sort, changes)
        request["ReturnValues"] = "ALL_NEW"
        try:
            response = await self._client.call("update_item", request)
        except ConditionFailed:
            raise NotFound(f"{subject}: does not exist") from None
        item: Item = response["Attributes"]
        return item


def make_update(
    table: str, partition: str, sort: str, changes: Mapping[str, Value | None]
) -> dict[str, Any]:
    """Return an UpdateItem request, conditional on the item existing and not being erased."""
    sets = {name: value for name, value in changes.items() if value is not None}
    removed = [name for name, value in changes.items() if value is None]
    parts = []
    if sets:
        parts.append("SET " + ", ".join(f"#{name} = :{name}" for name in sets))
    if removed:
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in removed))
    request: dict[str, Any] = {
        "TableName": table,
        "Key": directory_items.row_key(partition, sort),
        "UpdateExpression": " ".join(parts),
        "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#erased)",
        "ExpressionAttributeNames": {
            "#pk": Field.PK,
            "#erased": Field.ERASED,
            **{f"#{name}": name for name in changes},
        },
    }
    if sets:
        request["ExpressionAttributeValues"] = {
            f":{name}": _encode(value) for name, value in sets.items()
        }
    return request


def _encode(value: Value) -> dict[str, Any]:
    if isinstance(value, tuple):
        return {"L": [{"S": word} for word in value]}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}
