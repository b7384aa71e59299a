"""Remote delivery: sends events to devices on other gateways, through the gateways' streams.

`chatserver.gateway.delivery.event_dispatcher` also serves local sessions. A process without
sessions, such as the API, needs only this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.hot.bus.gateway_stream import (
    AnyRecord,
    ChannelSignal,
    GatewayStreamWriter,
    NewSeq,
    Publish,
    Push,
    UserSignal,
)
from chatserver.hot.users.inbox import parse_gateways


class RemoteDelivery:
    """Sends events from one process to other gateways; best effort.

    `own` is the process's own gateway, or an id that no gateway has. Nothing is sent to the stream
    of `own`.
    """

    def __init__(self, gateway_stream_writer: GatewayStreamWriter, own: GatewayId) -> None:
        self._gateway_stream_writer = gateway_stream_writer
        self._own = own

    def push(
        self, users: Sequence[UserId], epoch: Epoch, positions: InboxPositions, body: bytes
    ) -> None:
        """Send an event to the devices of `users`, with each user's inbox seq."""
        if positions.remote_gateways is None:
            return
        pushes: dict[GatewayId, Push] = {}
        for user, first, gateways in zip(
            users, positions.firsts, positions.remote_gateways, strict=True
        ):
            if gateways:
                for gateway in parse_gateways(gateways):
                    if gateway != self._own:
                        push = pushes.get(gateway)
                        if push is None:
                            push = pushes[gateway] = Push([], epoch, [], body)
                        push.users.append(user)
                        push.seqs.append(first + positions.offset)
        for gateway, push in pushes.items():
            self._gateway_stream_writer.send(gateway, push)

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify the user's sessions that the inbox has grown to `seq`."""
        self._send(gateways, NewSeq(user, seq))

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, remote_gateways: bytes | Literal[0]
    ) -> None:
        """Send a large-chat entry to `remote_gateways` (comma-separated; 0 if there are none)."""
        if remote_gateways:
            for gateway in parse_gateways(remote_gateways):
                self._gateway_stream_writer.send(gateway, Publish(chat, epoch, seq, body))

    def notify_channel_seq(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify gateways that a large chat has grown to `seq`."""
        self._send(gateways, Publish(chat, "", seq, b""))

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Send a signal to the user's devices."""
        self._send(gateways, UserSignal(user, frame))

    def send_channel_signal(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Send a signal from `user` to the other members of a large chat."""
        self._send(gateways, ChannelSignal(chat, user, frame))

    def _send(self, gateways: Sequence[GatewayId], record: AnyRecord) -> None:
        for gateway in gateways:
            if gateway != self._own:
                self._gateway_stream_writer.send(gateway, record)
