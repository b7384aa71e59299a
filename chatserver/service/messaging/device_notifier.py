"""Notification of users' devices about inbox changes and signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions


class DeviceNotifier(Protocol):
    """Sends events and signals (typing, presence) to users' devices, here and on other gateways.

    In a gateway, `chatserver.gateway.delivery.event_dispatcher` delivers to its own sessions and to
    other gateways. In other processes, `chatserver.hot.bus.remote_delivery` sends to gateways.

    Guarantees:
        Best effort. A client detects a lost event by the gap in the inbox seq, and reads it. A lost
        signal is not sent again.
        Never blocks: calls return before anything is sent.
    """

    def push(
        self, users: Sequence[UserId], epoch: Epoch, places: InboxPositions, body: bytes
    ) -> None:
        """Push an event to each of `users`, with its position in their inbox."""

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify the user's gateways that the inbox has grown to `seq`."""

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: bytes | Literal[0]
    ) -> None:
        """Push an entry of a large chat to members on this gateway, and to gateways in `far`."""

    def notify_channel_seq(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify gateways that a large chat has grown to `seq`."""

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Send a signal to the user's devices."""

    def send_channel_signal(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Send a signal of `user` to the other members of a large chat."""
