"""DynamoDB items of push subscriptions.

Owns these items in the `directory` table:

    PK u#<user>   SK push#<id>  kind S  target S  p256dh S?  auth S?  device S?  created N
                                expires_at N
    PK push#<id>  SK push#<id>  user S  expires_at N

The target is the endpoint URL of a browser, or the token of an application. The id is derived from
the target, so a browser that registers again writes the same item. The second item records the
owner of the target: the user who registered it last. Without that item, a shared browser could show
one user's messages to another. One transaction writes both items. A client registers again at each
start; otherwise its subscription expires after `SUBSCRIPTION_TTL_S`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Final

from chatserver.domain.ids import UserId
from chatserver.errors import CorruptData, NotFound, Unavailable
from chatserver.features.push.model import Subscription
from chatserver.features.push.tables import PushField as Field
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.item_attributes import format_key
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY

SUBSCRIPTION_TTL_S: Final = 90 * 86_400
PREFIX: Final = "push#"
_TRIES_MAX: Final = 4
_READ_MAX: Final = 100
_REMOVALS_AT_ONCE: Final = 8
SUBSCRIPTION: Final = Codec(
    Subscription,
    "u#{user}",
    PREFIX + "{id}",
    kind=Field.KIND,
    target=Field.TARGET,
    created_ms=Field.CREATED,
    p256dh=StoredField(Field.P256DH, absent=""),
    auth=StoredField(Field.AUTH, absent=""),
    device=Field.DEVICE,
)


def decode_subscription(item: Item) -> Subscription:
    """Decode a subscription. Raises CorruptData."""
    subscription = SUBSCRIPTION.decode(item)
    if subscription.kind == "web" and not (subscription.p256dh and subscription.auth):
        raise CorruptData(f"DynamoDB item {format_key(item)}: the keys of web push are missing")
    return subscription


class PushSubscriptions:
    """Reads and writes push subscriptions. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, per_user_max: int) -> None:
        self._per_user_max = per_user_max
        self._table = Table(client, DIRECTORY)

    async def list_for_user(self, user: UserId, now: float) -> list[Subscription]:
        """Return the user's subscriptions, oldest first. Strongly consistent."""
        span = Span(DIRECTORY, user_key(user), prefix=PREFIX)
        rows = await self._table.query(span, limit=_READ_MAX)
        live_rows = [row for row in rows if int(row[Field.EXPIRES_AT]["N"]) > now]
        subscriptions = [decode_subscription(row) for row in live_rows]
        return sorted(
            subscriptions, key=lambda subscription: (subscription.created_ms, subscription.id)
        )

    async def put(self, subscription: Subscription, now: float) -> None:
        """Register or renew a subscription.

        Guarantees:
            Atomic and idempotent.
            The target is removed from its previous owner.
            Bounded: if the user has too many subscriptions, the oldest are removed.

        Raises:
            Unavailable: the subscription may or may not have been registered.
        """

        async def attempt() -> None:
            owner = await self._find_owner(subscription.id)
            others = [
                existing
                for existing in await self.list_for_user(subscription.user, now)
                if existing.id != subscription.id
            ]
            actions = self._build_puts(subscription, owner, now)
            if owner not in (None, subscription.user):
                key = SUBSCRIPTION.key(user=owner or "", id=subscription.id)
                actions.append(self._table.delete_action(key))
            spare = len(others) + 1 - self._per_user_max
            for old in others[: max(0, spare)]:
                key = SUBSCRIPTION.key(user=subscription.user, id=old.id)
                actions.append(self._table.delete_action(key))
                actions.append(self._table.delete_action(_owner_row(old.id)))
            await self._table.client.transact(actions)

        error = Unavailable("push subscription: too many concurrent registrations; try again")
        # If the condition fails, the owner of the target has changed since it was read.
        await retry_lost_races(attempt, error, attempts_max=_TRIES_MAX)

    def _build_puts(
        self, subscription: Subscription, owner: UserId | None, now: float
    ) -> list[Action]:
        expires = {Field.EXPIRES_AT: int(now) + SUBSCRIPTION_TTL_S}
        row = SUBSCRIPTION.encode(dataclasses.replace(subscription, created_ms=int(now * 1000)))
        return [
            self._table.put_action(
                _owner_row(subscription.id),
                {Field.USER: subscription.user, **expires},
                if_=Attr(Field.USER).matches(owner),
            ),
            self._table.put_action(row, expires),
        ]

    async def _find_owner(self, subscription: str) -> UserId | None:
        row = await self._table.find(_owner_row(subscription))
        return UserId(row[Field.USER]["S"]) if row else None

    # removal

    async def remove(self, user: UserId, subscription: str, *, until_ms: int | None = None) -> None:
        """Remove a user's subscription. With `until_ms`, keep it if it was renewed after that time.

        Raises:
            NotFound: the user has no such subscription, or it was renewed after `until_ms`.
        """
        is_old = None if until_ms is None else Attr(Field.CREATED) <= until_ms
        # Delete the user's item first, because that stops the pushes. If the owner item then cannot
        # be deleted, it expires.
        try:
            key = SUBSCRIPTION.key(user=user, id=subscription)
            removed = await self._table.delete(key, "old", if_=is_old)
        except ConditionFailed:
            raise NotFound("push subscription: does not exist or was renewed") from None
        if not removed:
            raise NotFound("push subscription: does not exist")
        # If the condition fails, another user has registered the target.
        delete = self._table.delete(_owner_row(subscription), if_=Attr(Field.USER) == user)
        await try_write(delete)

    async def remove_for_device(self, user: UserId, device: str, now: float) -> int:
        """Remove a device's subscriptions; return how many there were."""
        return await self._remove_matching(
            user, now, lambda subscription: subscription.device == device
        )

    async def remove_all(
        self, user: UserId, now: float, *, except_device: str | None = None
    ) -> int:
        """Remove a user's subscriptions, except on `except_device`; return how many existed."""
        return await self._remove_matching(
            user,
            now,
            lambda subscription: except_device is None or subscription.device != except_device,
        )

    async def _remove_matching(
        self, user: UserId, now: float, is_match: Callable[[Subscription], bool]
    ) -> int:
        matching = [
            subscription
            for subscription in await self.list_for_user(user, now)
            if is_match(subscription)
        ]

        async def remove(subscription: Subscription) -> None:
            with contextlib.suppress(NotFound):
                await self.remove(user, subscription.id)

        await map_concurrently(
            remove, matching, in_flight_max=_REMOVALS_AT_ONCE, name="remove-subscription"
        )
        return len(matching)


def _owner_row(subscription: str) -> Key:
    return PREFIX + subscription, PREFIX + subscription
