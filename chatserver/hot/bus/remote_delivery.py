"""Delivery to devices on other gateways, through the mailboxes of these gateways.

`chatserver.gateway.delivery.event_dispatcher` serves the sessions of the same gateway. A process
without sessions, such as the API, needs only this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.hot.bus.mailbox import (
    AnyRecord,
    ChannelSignal,
    MailboxWriter,
    Nudge,
    Publish,
    Push,
    SignalMail,
)
from chatserver.hot.users.inbox import parse_gateways


class RemoteDelivery:
    """Sends events of one process to other gateways; best effort, like all mail.

    `own`: the gateway whose sessions are served directly; nothing is sent to its mailbox.
    """

    def __init__(self, mailbox_writer: MailboxWriter, own: GatewayId) -> None:
        self._mailbox_writer = mailbox_writer
        self._own = own

    def push(
        self, users: Sequence[UserId], epoch: Epoch, places: InboxPositions, body: bytes
    ) -> None:
        """Send an event to the devices of `users`, each with its inbox seq."""
        if places.far is None:
            return
        mail: dict[GatewayId, Push] = {}
        for user, first, far in zip(users, places.firsts, places.far, strict=True):
            if far:
                for gateway in parse_gateways(far):
                    if gateway != self._own:
                        push = mail.get(gateway)
                        if push is None:
                            push = mail[gateway] = Push([], epoch, [], body)
                        push.users.append(user)
                        push.seqs.append(first + places.offset)
        for gateway, push in mail.items():
            self._mailbox_writer.post(gateway, push)

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify sessions to read missing inbox entries up to `seq`."""
        self._post(gateways, Nudge(user, seq))

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: bytes | Literal[0]
    ) -> None:
        """Send an entry of a large chat to its members on the gateways in `far`, if it is not 0."""
        if far:
            for gateway in parse_gateways(far):
                self._mailbox_writer.post(gateway, Publish(chat, epoch, seq, body))

    def nudge_channel(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify gateways that a large chat has grown to `seq`."""
        self._post(gateways, Publish(chat, "", seq, b""))

    def signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Send a signal to the user's devices."""
        self._post(gateways, SignalMail(user, frame))

    def signal_channel(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Send a signal of `user` to the other members of a large chat."""
        self._post(gateways, ChannelSignal(chat, user, frame))

    def _post(self, gateways: Sequence[GatewayId], record: AnyRecord) -> None:
        for gateway in gateways:
            if gateway != self._own:
                self._mailbox_writer.post(gateway, record)
