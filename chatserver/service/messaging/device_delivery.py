"""Interface for sending events and signals to users' devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions


class DeviceDelivery(Protocol):
    """Sends events and signals (typing, presence) to users' devices on all gateways.

    Implementations: `chatserver.gateway.delivery.event_dispatcher` in a gateway,
    `chatserver.hot.bus.remote_delivery` in other processes.

    Guarantees:
        Best effort. If an event is lost, the gateway detects the gap in the inbox seq and reads the
            inbox. A lost signal is not sent again.
        Never blocks: calls return before anything is sent.
    """

    def push(
        self, users: Sequence[UserId], epoch: Epoch, positions: InboxPositions, body: bytes
    ) -> None:
        """Send an event to each user's devices, with the user's own inbox seq."""

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify the user's gateways that the inbox has grown to `seq`."""

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, remote_gateways: bytes | Literal[0]
    ) -> None:
        """Send a large-chat entry to members on this gateway and on `remote_gateways`."""

    def notify_channel_seq(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify gateways that a large chat has grown to `seq`."""

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Send a signal (typing, presence) to the user's devices."""

    def send_channel_signal(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Send a signal from `user` to the other members of a large chat."""
