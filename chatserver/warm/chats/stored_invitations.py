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

from collections.abc import Collection
from typing import Final

from chatserver.domain.invitation_rules import Invitation, ListedKind
from chatserver.warm.chats.directory_items import USER, chat_key, member_key, user_key
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
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


INVITATION: Final = Codec(
    Invitation,
    "u#{user}",
    "invitation#{chat}",
    inviter=Field.AUTHOR,
    role=Field.ROLE,
    created_ms=Field.CREATED,
    state=Field.STATE,
    expires_s=Field.EXPIRES_AT,
    name=Field.NAME,
)


class StoredInvitations:
    """Repository of invitations and trusted inviters."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def list_for(
        self, user: str, after: str | None, limit: int, now_s: float
    ) -> tuple[list[Invitation], str | None]:
        """Return `(invitations, next)`: a page of pending and declined ones, sorted by chat id.

        `next` is the `after` for the next page, or None. Expired invitations are omitted, so a page
        may have fewer than `limit` although there is a next page. Strongly consistent.
        """
        first = PREFIX if after is None else PREFIX + after
        span = Span(DIRECTORY, user_key(user), between=(first, AFTER))
        rows = await self._table.query(span, limit=limit + 2)
        found = [INVITATION.decode(row) for row in rows if row[Field.SK]["S"] != first]
        page = found[:limit]
        next_after = page[-1].chat if len(found) > limit else None
        return [invitation for invitation in page if invitation.expires_s > now_s], next_after

    async def find(self, user: str, chat: str, now_s: float) -> Invitation | None:
        """Return a user's pending invitation to a chat, or None. Strongly consistent."""
        item = await self._table.find(INVITATION.key(user=user, chat=chat))
        invitation = None if item is None else INVITATION.decode(item)
        if invitation and invitation.state == "pending" and invitation.expires_s > now_s:
            return invitation
        return None

    async def put(self, invitation: Invitation, now_s: float) -> bool:
        """Store an invitation; return False if the user already has one, even if declined."""
        is_free = Attr(Field.PK).is_absent | (Attr(Field.EXPIRES_AT) <= int(now_s))
        return await try_write(self._table.put(INVITATION.encode(invitation), if_=is_free))

    async def decline(self, user: str, chat: str) -> None:
        """Decline an invitation; no effect if it does not exist."""
        key = INVITATION.key(user=user, chat=chat)
        update = self._table.update(key, {Field.STATE: "declined"}, if_=Attr(Field.STATE).exists)
        await try_write(update)

    async def delete(self, user: str, chat: str) -> None:
        """Delete an invitation. Idempotent."""
        await self._table.delete(INVITATION.key(user=user, chat=chat))

    async def record_trust(self, user: str, inviter: str, now_s: float) -> None:
        """Record that `user` has accepted an invitation from `inviter`. Idempotent."""
        key = user_key(user), TRUST_PREFIX + inviter
        await self._table.put(key, {Field.CREATED: int(now_s * 1000)})

    async def find_trusting(self, inviter: str, users: Collection[str]) -> set[str]:
        """Return which of `users` have accepted an invitation from `inviter`.

        Strongly consistent. Cost: one call per 100 users.
        """
        items = await self._table.get_items(
            [(user_key(user), TRUST_PREFIX + inviter) for user in users]
        )
        return {item[Field.PK]["S"].removeprefix("u#") for item in items}

    async def find_created_since(self, users: Collection[str], since_ms: int) -> set[str]:
        """Return which of `users` were created after `since_ms`. Cost: one call per 100 users."""
        keys = [(user_key(user), user_key(user)) for user in users]
        found = map(USER.decode, await self._table.get_items(keys))
        return {user.user for user in found if user.created_ms > since_ms}

    async def count_chats(self, user: str, kind: ListedKind, limit: int) -> int:
        """Count a user's chats of one kind, up to `limit`. Eventually consistent.

        Guarantees:
            Cost: about one read unit per 80 chats.
        """
        span = Span(DIRECTORY, member_key(user), MEMBER_INDEX, _BETWEEN[kind])
        return await self._table.count(span, limit=limit)
