"""The event dispatcher: events to local devices, records to and from other gateways."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any, Literal, cast

import msgspec
import pytest

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.gateway.delivery.event_dispatcher import EventDispatcher
from chatserver.gateway.delivery.stream_record_handler import StreamRecordHandler
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.shared_session_context import HotPathCounters
from chatserver.gateway.transport.frame_codec import encode_text_frame
from chatserver.hot.bus.gateway_stream import (
    AnyRecord,
    CallResult,
    ChannelSignal,
    GatewayStreamWriter,
    NewSeq,
    Publish,
    Push,
    StoredUpdate,
    UserSignal,
)
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.chats.chat_log import StoredSeqs
from chatserver.protocol import codec, frames
from chatserver.service.messaging.stored_waits import StoredWaits
from tests.support.servers.processes import eventually

LOCAL, REMOTE = GatewayId("gw-local"), GatewayId("gw-remote")
ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
CHAT, EPOCH = ChatId("c1"), Epoch("E1")
BODY = codec.encode_event_body("c1", 7, 1_795_000_000_000_000, b'"chat":"c1","body":"hi"}')


@dataclasses.dataclass
class Device:
    """A session that records what it receives."""

    received: list[Any] = dataclasses.field(default_factory=list)

    def push(self, epoch: Epoch, seq: Seq, parts: tuple[bytes, ...], size: int) -> None:
        frame = b"".join(parts)
        assert len(frame) == size
        self.received.append((epoch, seq, frame))

    def notify_seq(self, seq: Seq) -> None:
        self.received.append(("notification", seq))

    def send_signal(self, frame: bytes) -> None:
        self.received.append(("signal", frame))

    def send_stored(self, frame: bytes) -> None:
        self.received.append(("frame", frame))


@dataclasses.dataclass
class Channel:
    """Fake channels of large chats that record what they receive."""

    received: list[Any] = dataclasses.field(default_factory=list)

    def push(self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes) -> None:
        self.received.append((chat, epoch, seq, body))

    def notify_seq(self, chat: ChatId, seq: Seq) -> None:
        self.received.append((chat, seq))

    def send_signal(self, chat: ChatId, user: UserId, frame: bytes) -> None:
        self.received.append((chat, user, frame))


@dataclasses.dataclass
class FakeBackend:
    """Fake stream writer and warm calls that record what they receive."""

    sent: list[tuple[GatewayId, AnyRecord]] = dataclasses.field(default_factory=list)
    results: list[CallResult] = dataclasses.field(default_factory=list)
    device_epochs: dict[Epoch, Epoch] = dataclasses.field(default_factory=dict)

    def get_device_epoch(self, epoch: Epoch) -> Epoch:
        return self.device_epochs.get(epoch, epoch)

    def send(self, gateway: GatewayId, record: AnyRecord) -> None:
        self.sent.append((gateway, record))

    def get_epoch(self, chat: ChatId) -> Epoch:
        return EPOCH

    def handle_result(self, result: CallResult) -> None:
        self.results.append(result)


@dataclasses.dataclass
class World:
    """A dispatcher with two devices of alice and none of bob."""

    dispatcher: EventDispatcher
    records: StreamRecordHandler
    backend: FakeBackend
    stored: StoredWaits
    devices: list[Device]
    registry: LocalSessions
    channels: Channel


@pytest.fixture
async def world() -> World:
    """Return a dispatcher and its fakes."""
    registry, backend, stored = LocalSessions(), FakeBackend(), StoredWaits(60, 60)
    devices = [Device(), Device()]
    for device in devices:
        registry.add(ALICE, cast(Any, device))
    writer, calls = cast(GatewayStreamWriter, backend), cast(RpcClient, backend)
    channels = Channel()
    dispatcher = EventDispatcher(
        gateway=LOCAL,
        registry=registry,
        gateway_stream_writer=writer,
        channels=cast(Any, channels),
        counters=HotPathCounters(),
    )
    unused: Any = None
    records = StreamRecordHandler(
        dispatcher=dispatcher,
        channels=cast(Any, channels),
        registry=registry,
        gateway_stream_writer=writer,
        stored_waits=stored,
        warm=calls,
        on_presence=unused,
        on_replaced=unused,
        on_revoked=unused,
        on_echo=unused,
    )
    return World(dispatcher, records, backend, stored, devices, registry, channels)


def inbox_at(seq: int, remote: list[bytes | Literal[0]] | None = None) -> InboxPositions:
    """Return one user's inbox position."""
    return InboxPositions([Seq(seq)], 0, remote)


def test_push_sends_the_encoded_frame_to_every_device(world: World) -> None:
    """The parts add up to the frame that the codec would encode."""
    world.dispatcher.push([ALICE], EPOCH, inbox_at(12), BODY)

    expected = encode_text_frame(codec.join_event(EPOCH, 12, BODY))
    assert [device.received for device in world.devices] == [[(EPOCH, 12, expected)]] * 2
    assert world.backend.sent == []


def test_push_in_a_new_epoch_contains_that_epoch(world: World) -> None:
    """Data that is cached per epoch is rebuilt for the next one."""
    for epoch in (EPOCH, Epoch("E2"), EPOCH):
        world.dispatcher.push([ALICE], epoch, inbox_at(1), BODY)

    found = [received[2] for received in world.devices[0].received]
    assert found == [
        encode_text_frame(codec.join_event(epoch, 1, BODY)) for epoch in ("E1", "E2", "E1")
    ]


def test_push_contains_the_cached_device_epoch_until_an_epoch_change(world: World) -> None:
    """Devices know one epoch, for the chats of all partitions."""
    whole, next_whole = Epoch("W1"), Epoch("W2")
    world.backend.device_epochs = {EPOCH: whole}
    world.dispatcher.push([ALICE], EPOCH, inbox_at(1), BODY)
    world.backend.device_epochs = {EPOCH: next_whole}
    world.dispatcher.push([ALICE], EPOCH, inbox_at(2), BODY)
    world.dispatcher.handle_epoch_change()
    world.dispatcher.push([ALICE], EPOCH, inbox_at(3), BODY)

    assert [received[0] for received in world.devices[0].received] == [whole, whole, next_whole]


@pytest.mark.parametrize("size", [1, 40, 100, 2_000, 70_000])
def test_push_of_any_size_has_the_correct_frame_header(world: World, size: int) -> None:
    """Every encoding of the frame length is correct."""
    world.dispatcher.push([ALICE], EPOCH, inbox_at(3), b"x" * size)

    ((_, _, frame),) = world.devices[0].received
    assert frame == encode_text_frame(codec.join_event(EPOCH, 3, b"x" * size))


def test_push_of_a_later_message_is_offset_in_each_inbox(world: World) -> None:
    """The nth message of a commit is n positions after the first one in every inbox."""
    carol = Device()
    world.registry.add(CAROL, cast(Any, carol))
    positions = InboxPositions([Seq(9), Seq(40), Seq(99)], 2, [0, b"gw-remote", 0])

    world.dispatcher.push([ALICE, BOB, CAROL], EPOCH, positions, BODY)

    found = [device.received for device in (*world.devices, carol)]
    assert found == [
        [(EPOCH, seq, encode_text_frame(codec.join_event(EPOCH, seq, BODY)))]
        for seq in (11, 11, 101)
    ]
    assert world.backend.sent == [(REMOTE, Push([BOB], EPOCH, [42], BODY))]


def test_push_to_remote_users_is_one_record_per_gateway(world: World) -> None:
    """The body, the longest part, is sent once per gateway, and never to this gateway itself."""
    remote = [b"gw-remote", b"gw-local,gw-3", b"gw-3,gw-remote"]
    positions = InboxPositions([Seq(1), Seq(5), Seq(8)], 1, remote)

    world.dispatcher.push([ALICE, BOB, CAROL], EPOCH, positions, BODY)

    assert world.backend.sent == [
        (REMOTE, Push([ALICE, CAROL], EPOCH, [2, 9], BODY)),
        (GatewayId("gw-3"), Push([BOB, CAROL], EPOCH, [6, 9], BODY)),
    ]


def test_seq_notification_reaches_local_devices_and_remote_gateways(world: World) -> None:
    """Each gateway with a device of the user reads the inbox."""
    world.dispatcher.notify_seq(ALICE, Seq(9), [LOCAL, REMOTE])

    assert [device.received for device in world.devices] == [[("notification", 9)]] * 2
    assert world.backend.sent == [(REMOTE, NewSeq(ALICE, 9))]


def test_publish_is_pushed_locally_and_posted_once_per_gateway(world: World) -> None:
    """The number of records does not depend on the number of members."""
    world.dispatcher.publish(CHAT, EPOCH, Seq(5), BODY, b"gw-remote,gw-3")
    world.dispatcher.publish(CHAT, EPOCH, Seq(6), BODY, 0)

    record = Publish(CHAT, EPOCH, 5, BODY)
    assert world.channels.received == [(CHAT, EPOCH, 5, BODY), (CHAT, EPOCH, 6, BODY)]
    assert world.backend.sent == [(REMOTE, record), (GatewayId("gw-3"), record)]


def test_seq_notification_of_large_chat_reaches_local_and_remote_gateways(world: World) -> None:
    """An entry without a body makes the gateway read the log."""
    world.dispatcher.notify_channel_seq(CHAT, Seq(9), [LOCAL, REMOTE])

    assert world.channels.received == [(CHAT, 9)]
    assert world.backend.sent == [(REMOTE, Publish(CHAT, "", 9, b""))]


def test_handle_record_of_large_chat_reaches_its_channel(world: World) -> None:
    """Entries, notifications, and signals."""
    world.records.handle(Publish(CHAT, EPOCH, 4, BODY))
    world.records.handle(Publish(CHAT, "", 5, b""))
    world.records.handle(ChannelSignal(CHAT, ALICE, b"{}"))

    assert world.channels.received == [(CHAT, EPOCH, 4, BODY), (CHAT, 5), (CHAT, ALICE, b"{}")]
    assert world.backend.sent == []


def test_signal_is_posted_to_other_gateways_unframed(world: World) -> None:
    """The record contains the JSON; each gateway frames it for its devices."""
    world.dispatcher.send_signal(ALICE, b"{}", [REMOTE, LOCAL])

    assert [device.received for device in world.devices] == [[("signal", b"{}")]] * 2
    assert world.backend.sent == [(REMOTE, UserSignal(ALICE, b"{}"))]


def test_signal_of_large_chat_reaches_local_and_remote_gateways(world: World) -> None:
    """There is one record per gateway, for any number of members."""
    world.dispatcher.send_channel_signal(CHAT, ALICE, b"{}", [REMOTE, LOCAL])

    assert world.channels.received == [(CHAT, ALICE, b"{}")]
    assert world.backend.sent == [(REMOTE, ChannelSignal(CHAT, ALICE, b"{}"))]


def test_handle_record_reaches_local_devices(world: World) -> None:
    """A record has the effect of the local call, and is not forwarded."""
    world.records.handle(Push([BOB, ALICE], EPOCH, [8, 4], BODY))
    world.records.handle(NewSeq(ALICE, 5))
    world.records.handle(UserSignal(ALICE, b"{}"))
    world.records.handle(Push([BOB], EPOCH, [9], BODY))

    received = world.devices[0].received
    assert received[0] == (EPOCH, 4, encode_text_frame(codec.join_event(EPOCH, 4, BODY)))
    assert received[1:] == [("notification", 5), ("signal", b"{}")]
    assert world.backend.sent == []


def test_handle_result_passes_it_to_the_warm_calls(world: World) -> None:
    """Answers of rpc workers go to the pending calls."""
    result = CallResult("id", "", b"payload")

    world.records.handle(result)

    assert world.backend.results == [result]


@contextlib.asynccontextmanager
async def checking(waits: StoredWaits) -> AsyncIterator[list[ChatId]]:
    """Run the checks; yield the chats that were read. All messages are stored."""
    read: list[ChatId] = []

    class Log:
        async def get_stored(self, chat: ChatId) -> StoredSeqs:
            read.append(chat)
            return StoredSeqs(Seq(9))

    task = asyncio.create_task(waits.run(Log()))
    try:
        yield read
    finally:
        task.cancel()


async def test_handle_stored_update_ends_waits_and_notifies_the_sender(world: World) -> None:
    """Sends that wait are acked, and every device of the sender gets the watermark."""
    completed: list[str] = []
    world.stored.add(ChatId("c1"), Seq(7), lambda: completed.append("stored"), lambda: None)

    async with checking(world.stored):
        world.records.handle(StoredUpdate(ALICE, "c1", 7, EPOCH))
        await eventually(lambda: completed == ["stored"])

    ((kind, frame),) = world.devices[1].received
    assert kind == "frame"
    assert msgspec.json.decode(frame[2:], type=frames.Stored) == frames.Stored("c1", 7)


async def test_handle_stored_update_of_an_offline_user_ends_waits(world: World) -> None:
    """A wait belongs to a chat, not to a device."""
    completed: list[str] = []
    world.stored.add(ChatId("c1"), Seq(7), lambda: completed.append("stored"), lambda: None)

    async with checking(world.stored):
        world.records.handle(StoredUpdate(BOB, "c1", 8, EPOCH))
        await eventually(lambda: completed == ["stored"])


async def test_handle_stored_update_of_another_epoch_is_dropped(world: World) -> None:
    """In another epoch, the seq may belong to another message, which may be lost."""
    for chat in ("c1", "c2"):
        world.stored.add(ChatId(chat), Seq(7), lambda: None, lambda: None)

    async with checking(world.stored) as read:
        world.records.handle(StoredUpdate(ALICE, "c1", 7, "an-older-one"))
        world.records.handle(StoredUpdate(BOB, "c2", 7, EPOCH))
        await eventually(lambda: read)

    assert read == ["c2"]
    assert world.devices[1].received == []
