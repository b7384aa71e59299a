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

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, get_args

from chatserver.config import Warm
from chatserver.domain.ids import UserId
from chatserver.errors import CorruptData, NotFound, Unavailable
from chatserver.features.push.model import Kind, Subscription
from chatserver.features.push.tables import PushField as Field
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Key

SUBSCRIPTION_TTL_S: Final = 90 * 86_400
PREFIX: Final = "push#"
_TRIES_MAX: Final = 4
_READ_MAX: Final = 100
_REMOVALS_AT_ONCE: Final = 8


class PushSubscriptions:
    """Reads and writes push subscriptions. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm, per_user_max: int) -> None:
        self._client = client
        self._settings = settings
        self._per_user_max = per_user_max
        self._table = DIRECTORY.name_in(settings)

    async def list_for_user(self, user: UserId, now: float) -> list[Subscription]:
        """Return the user's subscriptions, oldest first. Strongly consistent."""
        span = Span(DIRECTORY, directory_items.user_key(user), prefix=PREFIX)
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": _READ_MAX}
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        live_rows = [row for row in rows if int(row[Field.EXPIRES_AT]["N"]) > now]
        subscriptions = [decode_subscription(row, user) for row in live_rows]
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
        for _ in range(_TRIES_MAX):
            owner = await self._find_owner(subscription.id)
            others = [
                existing
                for existing in await self.list_for_user(subscription.user, now)
                if existing.id != subscription.id
            ]
            actions = self._build_puts(subscription, owner, now)
            if owner not in (None, subscription.user):
                actions.append(self._delete(directory_items.user_key(owner or ""), subscription.id))
            spare = len(others) + 1 - self._per_user_max
            for old in others[: max(0, spare)]:
                actions.append(self._delete(directory_items.user_key(subscription.user), old.id))
                actions.append(self._delete(PREFIX + old.id, old.id))
            try:
                await self._client.call("transact_write_items", {"TransactItems": actions})
            except ConditionFailed:
                continue  # the owner of the target has changed since it was read
            return
        raise Unavailable("push subscription: too many concurrent registrations; try again")

    def _build_puts(
        self, subscription: Subscription, owner: UserId | None, now: float
    ) -> list[dict[str, Any]]:
        expires = {"N": str(int(now) + SUBSCRIPTION_TTL_S)}
        row = encode_subscription(subscription, int(now * 1000))
        row[Field.EXPIRES_AT] = expires
        owned = directory_items.row_key(PREFIX + subscription.id, PREFIX + subscription.id)
        owned[Field.USER] = {"S": subscription.user}
        owned[Field.EXPIRES_AT] = expires
        claim: dict[str, Any] = {
            "TableName": self._table,
            "Item": owned,
            "ExpressionAttributeNames": {"#user": Field.USER},
            "ConditionExpression": "attribute_not_exists(#user)",
        }
        if owner is not None:
            claim["ConditionExpression"] = "#user = :owner"
            claim["ExpressionAttributeValues"] = {":owner": {"S": owner}}
        return [{"Put": claim}, {"Put": {"TableName": self._table, "Item": row}}]

    def _delete(self, partition: str, subscription: str) -> dict[str, Any]:
        key = directory_items.row_key(partition, PREFIX + subscription)
        return {"Delete": {"TableName": self._table, "Key": key}}

    async def _find_owner(self, subscription: str) -> UserId | None:
        row = await find_item(
            self._client,
            self._table,
            directory_items.row_key(PREFIX + subscription, PREFIX + subscription),
        )
        return UserId(row[Field.USER]["S"]) if row else None

    # removal

    async def remove(self, user: UserId, subscription: str, *, until_ms: int | None = None) -> None:
        """Remove a user's subscription. With `until_ms`, keep it if it was renewed after that time.

        Raises:
            NotFound: the user has no such subscription, or it was renewed after `until_ms`.
        """
        request: dict[str, Any] = {
            "TableName": self._table,
            "Key": directory_items.row_key(directory_items.user_key(user), PREFIX + subscription),
            "ReturnValues": "ALL_OLD",
        }
        if until_ms is not None:
            request["ConditionExpression"] = "#created <= :until"
            request["ExpressionAttributeNames"] = {"#created": Field.CREATED}
            request["ExpressionAttributeValues"] = {":until": {"N": str(until_ms)}}
        # Delete the user's item first, because that stops the pushes. If the owner item then cannot
        # be deleted, it expires.
        try:
            removed = (await self._client.call("delete_item", request)).get("Attributes")
        except ConditionFailed:
            raise NotFound("push subscription: does not exist or was renewed") from None
        if not removed:
            raise NotFound("push subscription: does not exist")
        with contextlib.suppress(ConditionFailed):  # another user has registered the target
            await self._client.call(
                "delete_item",
                {
                    "TableName": self._table,
                    "Key": directory_items.row_key(PREFIX + subscription, PREFIX + subscription),
                    "ConditionExpression": "#user = :user",
                    "ExpressionAttributeNames": {"#user": Field.USER},
                    "ExpressionAttributeValues": {":user": {"S": user}},
                },
            )

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
        for start in range(0, len(matching), _REMOVALS_AT_ONCE):
            batch = matching[start : start + _REMOVALS_AT_ONCE]
            removals = [self.remove(user, subscription.id) for subscription in batch]
            for outcome in await asyncio.gather(*removals, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, NotFound):
                    raise outcome
        return len(matching)


def encode_subscription(subscription: Subscription, created_ms: int) -> Item:
    row = directory_items.row_key(
        directory_items.user_key(subscription.user), PREFIX + subscription.id
    )
    row[Field.KIND] = {"S": subscription.kind}
    row[Field.TARGET] = {"S": subscription.target}
    row[Field.CREATED] = {"N": str(created_ms)}
    if subscription.kind == "web":
        row[Field.P256DH] = {"S": subscription.p256dh}
        row[Field.AUTH] = {"S": subscription.auth}
    if subscription.device is not None:
        row[Field.DEVICE] = {"S": subscription.device}
    return row


def decode_subscription(row: Item, user: UserId) -> Subscription:
    try:
        kind = row[Field.KIND]["S"]
        if kind not in get_args(Kind):
            raise CorruptData(
                f"table directory: a push subscription of {user} has the unknown kind {kind!r}"
            )
        return Subscription(
            id=row[Key.SK]["S"].removeprefix(PREFIX),
            user=user,
            kind=kind,
            target=row[Field.TARGET]["S"],
            p256dh=row[Field.P256DH]["S"] if kind == "web" else "",
            auth=row[Field.AUTH]["S"] if kind == "web" else "",
            device=row[Field.DEVICE]["S"] if Field.DEVICE in row else None,
            created_ms=int(row[Field.CREATED]["N"]),
        )
    except (KeyError, ValueError) as exc:
        raise CorruptData(
            f"table directory: a push subscription of {user} is invalid: {exc!r}"
        ) from exc
