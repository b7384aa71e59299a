"""Group invitations and trusted inviters, in table `directory`.

| record       | `PK`       | `SK`                  | attributes                                   |
|--------------|------------|-----------------------|----------------------------------------------|
| `Invitation` | `u#<user>` | `invitation#<chat>`   | `author created role name? state expires_at` |
| `Trust`      | `u#<user>` | `trust#<inviter>`     | `created`                                    |

A declined invitation is kept until it expires, so that it cannot be sent again immediately. Once a
user has accepted an invitation, its author may add the user to other groups without an invitation
(`Trust`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Final, Literal, cast

from chatserver.config import Warm
from chatserver.domain.invitations import Invitation, ListedKind, State
from chatserver.errors import CorruptData
from chatserver.warm.chats.directory_items import User, chat_key, member_key, row_key, user_key
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY, MEMBER_INDEX
from chatserver.warm.schema.tables import DirectoryField as Field

PREFIX: Final = "invitation#"
AFTER: Final = "invitation$"  # '$' sorts right after '#'
# Key ranges of a user's direct chats and groups. Direct chat ids begin with "d-", and '.' sorts
# right after '-'. Ids of companion sessions begin with a digit, so they are in neither range.
_BETWEEN: Final[dict[ListedKind, tuple[str, str]]] = {
    "direct": (chat_key("d-"), chat_key("d.")),
    "group": (chat_key("d."), chat_key("~")),
}
TRUST_PREFIX: Final = "trust#"


def encode_invitation(invitation: Invitation) -> Item:
    item: Item = {
        **row_key(user_key(invitation.user), PREFIX + invitation.chat),
        Field.AUTHOR: {"S": invitation.inviter},
        Field.ROLE: {"S": invitation.role},
        Field.CREATED: {"N": str(invitation.created_ms)},
        Field.STATE: {"S": invitation.state},
        Field.EXPIRES_AT: {"N": str(invitation.expires_s)},
    }
    if invitation.name is not None:
        item[Field.NAME] = {"S": invitation.name}
    return item


def decode_invitation(item: Item) -> Invitation:
    """Decode an invitation. Raises CorruptData."""
    try:
        return Invitation(
            item[Field.PK]["S"].removeprefix("u#"),
            item[Field.SK]["S"].removeprefix(PREFIX),
            item[Field.AUTHOR]["S"],
            cast(Literal["admin", "member"], item[Field.ROLE]["S"]),
            item[Field.NAME]["S"] if Field.NAME in item else None,
            int(item[Field.CREATED]["N"]),
            int(item[Field.EXPIRES_AT]["N"]),
            cast(State, item[Field.STATE]["S"]),
        )
    except (KeyError, ValueError) as exc:
        raise CorruptData(
            f"table directory: {item.get(Field.PK)} has an invalid invitation"
        ) from exc


class InvitationRows:
    """Repository of invitations and trusted inviters."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def list_for(
        self, user: str, after: str | None, limit: int, now_s: float
    ) -> tuple[list[Invitation], str | None]:
        """Return `(invitations, next)`: a page of pending and declined ones, sorted by chat id.

        `next` is the `after` for the next page, or None. Expired invitations are omitted, so a page
        may have fewer than `limit` although there is a next page. Strongly consistent.
        """
        first = PREFIX if after is None else PREFIX + after
        span = Span(DIRECTORY, user_key(user), between=(first, AFTER))
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit + 2}
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        found = [decode_invitation(row) for row in rows if row[Field.SK]["S"] != first]
        page = found[:limit]
        following = page[-1].chat if len(found) > limit else None
        return [invitation for invitation in page if invitation.expires_s > now_s], following

    async def find(self, user: str, chat: str, now_s: float) -> Invitation | None:
        """Return a user's pending invitation to a chat, or None. Strongly consistent."""
        key = row_key(user_key(user), PREFIX + chat)
        for item in await get_items(self._client, self._table, [key]):
            invitation = decode_invitation(item)
            if invitation.state == "pending" and invitation.expires_s > now_s:
                return invitation
        return None

    async def put(self, invitation: Invitation, now_s: float) -> bool:
        """Store an invitation; return False if the user already has one, even if declined."""
        request = {
            "TableName": self._table,
            "Item": encode_invitation(invitation),
            "ConditionExpression": "attribute_not_exists(#pk) OR #expires <= :now",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#expires": Field.EXPIRES_AT},
            "ExpressionAttributeValues": {":now": {"N": str(int(now_s))}},
        }
        return await write_conditionally(self._client, "put_item", request)

    async def decline(self, user: str, chat: str) -> None:
        """Decline an invitation; no effect if it does not exist."""
        request = {
            "TableName": self._table,
            "Key": row_key(user_key(user), PREFIX + chat),
            "UpdateExpression": "SET #state = :declined",
            "ConditionExpression": "attribute_exists(#state)",
            "ExpressionAttributeNames": {"#state": Field.STATE},
            "ExpressionAttributeValues": {":declined": {"S": "declined"}},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def delete(self, user: str, chat: str) -> None:
        """Delete an invitation. Idempotent."""
        key = row_key(user_key(user), PREFIX + chat)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def record_trust(self, user: str, inviter: str, now_s: float) -> None:
        """Record that `user` has accepted an invitation from `inviter`. Idempotent."""
        item = row_key(user_key(user), TRUST_PREFIX + inviter)
        item[Field.CREATED] = {"N": str(int(now_s * 1000))}
        await self._client.call("put_item", {"TableName": self._table, "Item": item})

    async def find_trusting(self, inviter: str, users: Collection[str]) -> set[str]:
        """Return which of `users` have accepted an invitation from `inviter`.

        Strongly consistent. Cost: one call per 100 users.
        """
        keys = [row_key(user_key(user), TRUST_PREFIX + inviter) for user in users]
        items = await get_items(self._client, self._table, keys)
        return {item[Field.PK]["S"].removeprefix("u#") for item in items}

    async def find_created_since(self, users: Collection[str], since_ms: int) -> set[str]:
        """Return which of `users` were created after `since_ms`. Cost: one call per 100 users."""
        keys = [row_key(user_key(user), user_key(user)) for user in users]
        found = map(User.decode, await get_items(self._client, self._table, keys))
        return {user.user for user in found if user.created_ms > since_ms}

    async def count_chats(self, user: str, kind: ListedKind, limit: int) -> int:
        """Count a user's chats of one kind, up to `limit`. Eventually consistent.

        Guarantees:
            Cost: about one read unit per 80 chats.
        """
        span = Span(DIRECTORY, member_key(user), MEMBER_INDEX, _BETWEEN[kind])
        count, start = 0, None
        while count < limit:
            request = {**span.query(self._settings), "Select": "COUNT", "Limit": limit - count}
            if start is not None:
                request["ExclusiveStartKey"] = start
            page = await self._client.call("query", request)
            count += page["Count"]
            start = page.get("LastEvaluatedKey")
            if start is None:
                break
        return count
