"""Event dispatcher: sends events and signals to local sessions and to other gateways' streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.shared_session_context import HotPathCounters
from chatserver.gateway.transport.frame_codec import encode_text_header
from chatserver.hot.bus.gateway_stream import GatewayStreamWriter
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.protocol import codec


class EventDispatcher:
    def __init__(
        self,
        *,
        gateway: GatewayId,
        registry: LocalSessions,
        gateway_stream_writer: GatewayStreamWriter,
        channels: LargeChatDelivery,
        counters: HotPathCounters,
    ) -> None:
        self._counters = counters
        self._remote = RemoteDelivery(gateway_stream_writer, gateway)
        self._registry = registry
        self._by_user = registry.by_user
        # Values of the last push: `_epoch` is the epoch of the Redis partition, `_device_epoch` the
        # epoch sent to devices, and `_head` the bytes of the event frame before the inbox seq.
        # `_heads` caches `(_device_epoch, _head)` for each partition epoch.
        self._epoch = self._device_epoch = Epoch("")
        self._head = b""
        self._heads: dict[Epoch, tuple[Epoch, bytes]] = {}
        self._gateway_stream_writer = gateway_stream_writer
        self._channels = channels

    def push(
        self, users: Sequence[UserId], epoch: Epoch, positions: InboxPositions, body: bytes
    ) -> None:
        """Push an event to the devices of `users`, with each user's own inbox seq."""
        if epoch != self._epoch:
            self._switch_epoch(epoch)
        by_user, head, offset = self._by_user, self._head, positions.offset
        device_epoch = self._device_epoch
        shared = len(head) + len(body)
        counters = self._counters
        pushed = counters.pushed
        for user, first in zip(users, positions.firsts, strict=True):
            sessions = by_user.get(user)
            if sessions:
                seq = Seq(first + offset)
                encoded_seq = b"%d" % seq
                length = shared + len(encoded_seq)
                header = encode_text_header(length)
                # Keep the frame in parts: joining them would copy the body.
                parts = (header, head, encoded_seq, body)
                for session in sessions:
                    session.push(device_epoch, seq, parts, length + len(header))
        # For metrics, the first new event of a loop tick is enough; tracing needs all of them.
        if (counters.first is None or counters.traced is not None) and counters.pushed != pushed:
            counters.record_new_event(body, counters.pushed - pushed)
        if positions.remote_gateways is not None:
            self._remote.push(users, epoch, positions, body)

    def _switch_epoch(self, epoch: Epoch) -> None:
        head = self._heads.get(epoch)
        if head is None:
            device_epoch = self._gateway_stream_writer.get_device_epoch(epoch)
            head = self._heads[epoch] = (device_epoch, codec.encode_event_head(device_epoch))
        self._epoch, (self._device_epoch, self._head) = epoch, head

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify the user's sessions that the inbox has grown to `seq`."""
        for session in self._registry.list_sessions(user):
            session.notify_seq(seq)
        self._remote.notify_seq(user, seq, gateways)

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, remote_gateways: bytes | Literal[0]
    ) -> None:
        """Send a large-chat entry to members on this gateway and on `remote_gateways`."""
        self._channels.push(chat, epoch, seq, body)
        self._remote.publish(chat, epoch, seq, body, remote_gateways)

    def notify_channel_seq(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify members on this and the given gateways that a large chat has grown to `seq`."""
        self._channels.notify_seq(chat, seq)
        self._remote.notify_channel_seq(chat, seq, gateways)

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Send a signal to the user's devices; best effort."""
        for session in self._registry.list_sessions(user):
            session.send_signal(frame)
        self._remote.send_signal(user, frame, gateways)

    def send_channel_signal(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Send a signal from `user` to the other members of a large chat; best effort."""
        self._channels.send_signal(chat, user, frame)
        self._remote.send_channel_signal(chat, user, frame, gateways)

    def handle_epoch_change(self) -> None:
        """Clear the cached starts of event frames after a Redis partition's epoch has changed."""
        self._epoch = Epoch("")
        self._heads.clear()
