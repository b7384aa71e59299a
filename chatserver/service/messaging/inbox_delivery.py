"""Delivery of a chat's entries to the inboxes of its members, after the commit."""

from __future__ import annotations

from chatserver.domain.ids import Seq
from chatserver.domain.inboxes import Delivery
from chatserver.domain.messages import Audience
from chatserver.hot.users.inbox import Inboxes
from chatserver.service.messaging.device_delivery import DeviceDelivery
from chatserver.service.messaging.direct_chats import list_with_first_message


async def deliver_to_all(
    inboxes: Inboxes, devices: DeviceDelivery, audience: Audience, upto: Seq
) -> None:
    """Deliver a chat's entries up to seq `upto` to the inboxes.

    Entries that were sent while the chat was large are not delivered to inboxes. Read `audience`
    after committing `upto`. Entries up to `audience.done` are already delivered.

    Guarantees:
        Idempotent: no entry is delivered twice, and only users with new entries are notified.
    """
    deliveries = [
        Delivery(user, audience.chat, first, last, audience.epoch)
        for user, after in audience.users.items()
        for first, last in audience.inbox_spans(max(after, audience.done), upto)
    ]
    if not deliveries:
        return
    await list_with_first_message(inboxes, audience, devices)
    for result in await inboxes.deliver(deliveries):
        if result.appended:
            devices.notify_seq(result.user, result.seq, result.gateways)
