"""Stream record handler: the records that other processes write to this gateway's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from chatserver.domain.access.logins import RevocationMarks
from chatserver.domain.ids import ChatId, Epoch, Seq, SessionId, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.domain.presence import PresenceRecord, PresenceState
from chatserver.gateway.delivery.event_dispatcher import EventDispatcher
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.transport.frame_codec import encode_text_frame
from chatserver.hot.bus.gateway_stream import (
    AnyRecord,
    CallResult,
    ChannelSignal,
    Echo,
    EndSessions,
    GatewayStreamWriter,
    NewSeq,
    PresenceUpdate,
    Publish,
    Push,
    Replaced,
    StoredUpdate,
    UserSignal,
)
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.protocol import codec, frames
from chatserver.service.messaging.stored_waits import StoredWaits


class StreamRecordHandler:
    def __init__(
        self,
        *,
        dispatcher: EventDispatcher,
        channels: LargeChatDelivery,
        registry: LocalSessions,
        gateway_stream_writer: GatewayStreamWriter,
        stored_waits: StoredWaits,
        warm: RpcClient,
        on_presence: Callable[[UserId, PresenceRecord], None],
        on_replaced: Callable[[UserId, SessionId], None],
        on_revoked: Callable[[UserId, RevocationMarks, str], None],
        on_echo: Callable[[Echo], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._channels = channels
        self._registry = registry
        self._gateway_stream_writer = gateway_stream_writer
        self._stored_waits = stored_waits
        self._warm = warm
        self._on_presence = on_presence
        self._on_replaced = on_replaced
        self._on_revoked = on_revoked
        self._on_echo = on_echo

    def handle(self, record: AnyRecord) -> None:
        match record:
            case Push():
                users = [UserId(user) for user in record.users]
                positions = InboxPositions([Seq(seq) for seq in record.seqs], 0, None)
                self._dispatcher.push(users, Epoch(record.epoch), positions, record.body)
            case NewSeq():
                self._dispatcher.notify_seq(UserId(record.user), Seq(record.seq), ())
            case Publish() if record.body:
                self._channels.push(
                    ChatId(record.chat), Epoch(record.epoch), Seq(record.seq), record.body
                )
            case Publish():
                self._channels.notify_seq(ChatId(record.chat), Seq(record.seq))
            case ChannelSignal():
                self._channels.send_signal(ChatId(record.chat), UserId(record.user), record.frame)
            case UserSignal():
                self._dispatcher.send_signal(UserId(record.user), record.frame, ())
            case StoredUpdate():
                self._handle_stored(record)
            case PresenceUpdate():
                presence = PresenceRecord(
                    PresenceState(record.state), record.last_ms, record.version
                )
                self._on_presence(UserId(record.user), presence)
            case Replaced():
                self._on_replaced(UserId(record.user), SessionId(record.session))
            case EndSessions():
                marks = RevocationMarks(record.before, frozenset(record.logins), record.is_banned)
                self._on_revoked(UserId(record.user), marks, record.reason)
            case CallResult():
                self._warm.handle_result(record)
            case Echo():
                self._on_echo(record)
            case _ as never:
                assert_never(never)

    def _handle_stored(self, record: StoredUpdate) -> None:
        chat, upto = ChatId(record.chat), Seq(record.upto)
        if record.epoch != self._gateway_stream_writer.get_epoch(chat):
            return  # `upto` is from another epoch and may belong to another message
        self._stored_waits.schedule_check(chat)
        sessions = self._registry.list_sessions(UserId(record.user))
        if sessions:
            frame = encode_text_frame(codec.encode(frames.Stored(chat, upto)))
            for session in sessions:
                session.send_stored(frame)
