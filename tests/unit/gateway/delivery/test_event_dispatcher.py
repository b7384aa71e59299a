"""The router: events to devices here, records to other gateways, and back."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, cast

import msgspec
import pytest

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import InboxPositions
from chatserver.gateway.delivery.event_dispatcher import EventDispatcher
from chatserver.gateway.session.session_context import HotPathCounters
from chatserver.gateway.session.session_registry import SessionRegistry
from chatserver.gateway.transport.framing import text_frame
from chatserver.hot.bus.gateway_stream import (
    Answer,
    AnyRecord,
    ChannelSignal,
    GatewayStreamWriter,
    NewSeq,
    Publish,
    Push,
    StoredUpdate,
    UserSignal,
)
from chatserver.hot.bus.rpc_client import WarmCalls
from chatserver.protocol import codec, frames
from chatserver.service.messaging.stored_acks import StoredWaits

HERE, FAR = GatewayId("gw-here"), GatewayId("gw-far")
ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
CHAT, EPOCH = ChatId("c1"), Epoch("E1")
BODY = codec.event_body("c1", 7, 1_795_000_000_000_000, b'"chat":"c1","body":"hi"}')


@dataclasses.dataclass
class Device:
    """A session that keeps what it receives."""

    told: list[Any] = dataclasses.field(default_factory=list)

    def push(self, epoch: Epoch, seq: Seq, parts: tuple[bytes, ...], size: int) -> None:
        frame = b"".join(parts)
        assert len(frame) == size
        self.told.append((epoch, seq, frame))

    def notify_seq(self, seq: Seq) -> None:
        self.told.append(("notification", seq))

    def send_signal(self, frame: bytes) -> None:
        self.told.append(("signal", frame))

    def send_stored(self, frame: bytes) -> None:
        self.told.append(("frame", frame))


@dataclasses.dataclass
class Channel:
    """A fake of the large chats that keeps what it receives."""

    told: list[Any] = dataclasses.field(default_factory=list)

    def push(self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes) -> None:
        self.told.append((chat, epoch, seq, body))

    def notify_seq(self, chat: ChatId, seq: Seq) -> None:
        self.told.append((chat, seq))

    def send_signal(self, chat: ChatId, user: UserId, frame: bytes) -> None:
        self.told.append((chat, user, frame))


@dataclasses.dataclass
class Office:
    """Stands for the post and the warm tier's calls: keeps what comes."""

    posted: list[tuple[GatewayId, AnyRecord]] = dataclasses.field(default_factory=list)
    answers: list[Answer] = dataclasses.field(default_factory=list)
    told: dict[Epoch, Epoch] = dataclasses.field(default_factory=dict)

    def device_epoch(self, epoch: Epoch) -> Epoch:
        return self.told.get(epoch, epoch)

    def post(self, gateway: GatewayId, record: AnyRecord) -> None:
        self.posted.append((gateway, record))

    def epoch_of(self, chat: ChatId) -> Epoch:
        return EPOCH

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)


@dataclasses.dataclass
class World:
    """A router with two devices of alice, and none of bob."""

    router: EventDispatcher
    office: Office
    stored: StoredWaits
    devices: list[Device]
    registry: SessionRegistry
    channels: Channel


@pytest.fixture
async def world() -> World:
    """A router and what surrounds it."""
    registry, office, stored = SessionRegistry(), Office(), StoredWaits(60)
    devices = [Device(), Device()]
    for device in devices:
        registry.add(ALICE, cast(Any, device))
    post, calls = cast(GatewayStreamWriter, office), cast(WarmCalls, office)
    router = EventDispatcher(
        gateway=HERE,
        registry=registry,
        gateway_stream_writer=post,
        stored_waits=stored,
        warm=calls,
        counters=HotPathCounters(),
    )
    channels = Channel()
    router.channels = cast(Any, channels)
    return World(router, office, stored, devices, registry, channels)


def at(seq: int, far: list[bytes | Literal[0]] | None = None) -> InboxPositions:
    """One user's place in the inbox."""
    return InboxPositions([Seq(seq)], 0, far)


def test_push_gives_every_device_the_whole_event_frame(world: World) -> None:
    """The pieces are the very frame that the codec would join."""
    world.router.push([ALICE], EPOCH, at(12), BODY)

    expected = text_frame(codec.join_event(EPOCH, 12, BODY))
    assert [device.told for device in world.devices] == [[(EPOCH, 12, expected)]] * 2
    assert world.office.posted == []


def test_push_in_a_new_epoch_has_its_name(world: World) -> None:
    """Whatever is created once per epoch is created again in the next one."""
    for epoch in (EPOCH, Epoch("E2"), EPOCH):
        world.router.push([ALICE], epoch, at(1), BODY)

    found = [told[2] for told in world.devices[0].told]
    assert found == [text_frame(codec.join_event(epoch, 1, BODY)) for epoch in ("E1", "E2", "E1")]


def test_push_names_the_epoch_of_all_partitions_until_any_changes(world: World) -> None:
    """Devices know one epoch, whichever partition their chats are in."""
    whole, next_whole = Epoch("W1"), Epoch("W2")
    world.office.told = {EPOCH: whole}
    world.router.push([ALICE], EPOCH, at(1), BODY)
    world.office.told = {EPOCH: next_whole}
    world.router.push([ALICE], EPOCH, at(2), BODY)
    world.router.forget_epoch()
    world.router.push([ALICE], EPOCH, at(3), BODY)

    assert [told[0] for told in world.devices[0].told] == [whole, whole, next_whole]


@pytest.mark.parametrize("size", [1, 40, 100, 2_000, 70_000])
def test_push_of_any_size_has_the_right_header(world: World, size: int) -> None:
    """Frames of every width of length are whole."""
    world.router.push([ALICE], EPOCH, at(3), b"x" * size)

    ((_, _, frame),) = world.devices[0].told
    assert frame == text_frame(codec.join_event(EPOCH, 3, b"x" * size))


def test_push_of_user_elsewhere_is_posted_to_each_other_gateway(world: World) -> None:
    """This gateway serves its own devices without mail."""
    world.router.push([BOB], EPOCH, at(5, far=[b"gw-far,gw-here,gw-3"]), BODY)

    record = Push([BOB], EPOCH, [5], BODY)
    assert world.office.posted == [(FAR, record), (GatewayId("gw-3"), record)]


def test_push_counts_from_the_first_place_of_each_user(world: World) -> None:
    """A later message of a call stands as many places behind the first in every inbox."""
    carol = Device()
    world.registry.add(CAROL, cast(Any, carol))
    places = InboxPositions([Seq(9), Seq(40), Seq(99)], 2, [0, b"gw-far", 0])

    world.router.push([ALICE, BOB, CAROL], EPOCH, places, BODY)

    found = [device.told for device in (*world.devices, carol)]
    assert found == [
        [(EPOCH, seq, text_frame(codec.join_event(EPOCH, seq, BODY)))] for seq in (11, 11, 101)
    ]
    assert world.office.posted == [(FAR, Push([BOB], EPOCH, [42], BODY))]


def test_push_of_users_elsewhere_is_one_record_a_gateway(world: World) -> None:
    """The body, by far the longest part, is sent once per gateway."""
    far = [b"gw-far", b"gw-here,gw-3", b"gw-3,gw-far"]
    places = InboxPositions([Seq(1), Seq(5), Seq(8)], 1, far)

    world.router.push([ALICE, BOB, CAROL], EPOCH, places, BODY)

    assert world.office.posted == [
        (FAR, Push([ALICE, CAROL], EPOCH, [2, 9], BODY)),
        (GatewayId("gw-3"), Push([BOB, CAROL], EPOCH, [6, 9], BODY)),
    ]


def test_seq_notification_reaches_devices_here_and_gateways_elsewhere(world: World) -> None:
    """Each gateway with a device of the user reads the inbox."""
    world.router.notify_seq(ALICE, Seq(9), [HERE, FAR])

    assert [device.told for device in world.devices] == [[("notification", 9)]] * 2
    assert world.office.posted == [(FAR, NewSeq(ALICE, 9))]


def test_publish_is_pushed_here_and_mailed_once_a_gateway(world: World) -> None:
    """However many members a large chat has."""
    world.router.publish(CHAT, EPOCH, Seq(5), BODY, b"gw-far,gw-3")
    world.router.publish(CHAT, EPOCH, Seq(6), BODY, 0)

    record = Publish(CHAT, EPOCH, 5, BODY)
    assert world.channels.told == [(CHAT, EPOCH, 5, BODY), (CHAT, EPOCH, 6, BODY)]
    assert world.office.posted == [(FAR, record), (GatewayId("gw-3"), record)]


def test_seq_notification_of_large_chat_reaches_here_and_gateways_elsewhere(world: World) -> None:
    """An entry without a body makes the gateway read the log."""
    world.router.notify_channel_seq(CHAT, Seq(9), [HERE, FAR])

    assert world.channels.told == [(CHAT, 9)]
    assert world.office.posted == [(FAR, Publish(CHAT, "", 9, b""))]


def test_take_brings_entries_of_large_chats_to_their_channel(world: World) -> None:
    """Entries, notifications, and signals."""
    world.router.handle(Publish(CHAT, EPOCH, 4, BODY))
    world.router.handle(Publish(CHAT, "", 5, b""))
    world.router.handle(ChannelSignal(CHAT, ALICE, b"{}"))

    assert world.channels.told == [(CHAT, EPOCH, 4, BODY), (CHAT, 5), (CHAT, ALICE, b"{}")]
    assert world.office.posted == []


def test_signal_is_framed_at_the_end_of_its_way_only(world: World) -> None:
    """The mail carries the JSON; each gateway sends it."""
    world.router.send_signal(ALICE, b"{}", [FAR, HERE])

    assert [device.told for device in world.devices] == [[("signal", b"{}")]] * 2
    assert world.office.posted == [(FAR, UserSignal(ALICE, b"{}"))]


def test_signal_of_large_chat_reaches_here_and_gateways_elsewhere(world: World) -> None:
    """Once for each gateway, however many members it has there."""
    world.router.send_channel_signal(CHAT, ALICE, b"{}", [FAR, HERE])

    assert world.channels.told == [(CHAT, ALICE, b"{}")]
    assert world.office.posted == [(FAR, ChannelSignal(CHAT, ALICE, b"{}"))]


def test_take_brings_records_to_the_devices_here(world: World) -> None:
    """Mail does what the call here would have done, and is not posted on."""
    world.router.handle(Push([BOB, ALICE], EPOCH, [8, 4], BODY))
    world.router.handle(NewSeq(ALICE, 5))
    world.router.handle(UserSignal(ALICE, b"{}"))
    world.router.handle(Push([BOB], EPOCH, [9], BODY))

    told = world.devices[0].told
    assert told[0] == (EPOCH, 4, text_frame(codec.join_event(EPOCH, 4, BODY)))
    assert told[1:] == [("notification", 5), ("signal", b"{}")]
    assert world.office.posted == []


def test_take_answer_goes_to_who_waits_for_it(world: World) -> None:
    """Answers of the warm tier are for its callers."""
    answer = Answer("id", "", b"payload")

    world.router.handle(answer)

    assert world.office.answers == [answer]


async def test_take_stored_ends_waits_and_tells_the_sender_s_devices(world: World) -> None:
    """Sends that wait are acked, and every device of the sender gets the watermark."""
    heard: list[str] = []
    world.stored.add(ChatId("c1"), Seq(7), lambda: heard.append("stored"), lambda: None)

    world.router.handle(StoredUpdate(ALICE, "c1", 7, EPOCH))

    assert heard == ["stored"]
    ((kind, frame),) = world.devices[1].told
    assert kind == "frame"
    assert msgspec.json.decode(frame[2:], type=frames.Stored) == frames.Stored("c1", 7)


async def test_take_stored_of_user_who_left_still_ends_waits(world: World) -> None:
    """A wait belongs to a chat, not to a device."""
    heard: list[str] = []
    world.stored.add(ChatId("c1"), Seq(7), lambda: heard.append("stored"), lambda: None)

    world.router.handle(StoredUpdate(BOB, "c1", 8, EPOCH))

    assert heard == ["stored"]


async def test_take_stored_of_another_epoch_is_dropped(world: World) -> None:
    """In another life of Redis the seq may have been another message, which may be lost."""
    heard: list[str] = []
    world.stored.add(ChatId("c1"), Seq(7), lambda: heard.append("stored"), lambda: None)

    world.router.handle(StoredUpdate(ALICE, "c1", 7, "an-older-one"))

    assert heard == []
    assert world.devices[1].told == []
