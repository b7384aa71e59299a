"""Example push subscription items, for the generated table documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from chatserver.domain.ids import UserId
from chatserver.features.push.model import Subscription
from chatserver.features.push.tables import PushField as Field
from chatserver.features.push.warm.subscriptions import PREFIX, SUBSCRIPTION
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_MS: Final = 1_795_000_000_000
_PHONE: Final = Subscription("s1", UserId("alice"), "fcm", "fcm-token-of-the-phone", device="phone")
_BROWSER: Final = Subscription(
    id="s2",
    user=UserId("alice"),
    kind="web",
    target="https://push.example/alice",
    p256dh="BGsX0fLh",
    auth="AAAAAAAA",
)


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a user's subscriptions, each with the item that records its owner."""
    if table is not DIRECTORY:
        return []
    items = []
    for subscription in (_PHONE, _BROWSER):
        ends = {Field.EXPIRES_AT: {"N": str(_MS // 1000 + 90 * 86_400)}}
        dated = dataclasses.replace(subscription, created_ms=_MS)
        items.append(SUBSCRIPTION.encode(dated) | ends)
        owner = row_key(PREFIX + subscription.id, PREFIX + subscription.id)
        items.append(owner | {Field.USER: {"S": subscription.user}} | ends)
    return items
