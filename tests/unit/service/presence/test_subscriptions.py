"""Presence subscriptions: only users who share a chat get changes, at a limited rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId, direct_chat_id
from chatserver.domain.inboxes import UserChat
from chatserver.domain.presence import PresenceRecord, PresenceState
from chatserver.errors import BadRequest, NotFound
from chatserver.service.presence import subscriptions
from chatserver.service.presence.subscriptions import PresenceSubscriptions
from tests.support.servers.processes import eventually

ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
GROUP, CLOSED = ChatId("g-1"), ChatId("g-closed")


class Device:
    """A session that records what it receives."""

    def __init__(self, user: UserId) -> None:
        self.user = user
        self.is_live = True
        self.received: list[tuple[str, str]] = []

    def send_signal(self, frame: bytes) -> None:
        fields = msgspec.json.decode(frame)
        assert (fields["type"], fields["kind"]) == ("signal", "presence")
        self.received.append((fields["from"], fields["state"]))


class World:
    """A fake Redis for subscriptions."""

    def __init__(self) -> None:
        self.members: dict[ChatId, set[UserId]] = {}
        self.closed: set[ChatId] = set()
        self.presences: dict[UserId, PresenceRecord] = {}
        self.watched: set[UserId] = set()
        self.subscriptions = PresenceSubscriptions(
            states=self, inboxes=self, load_chat=self.open_chat, users_max=3, clock=SystemClock()
        )

    def set_presence(self, user: UserId, state: PresenceState, version: int = 1) -> PresenceRecord:
        """Set the presence of a user."""
        self.presences[user] = PresenceRecord(state, 1_000, version)
        return self.presences[user]

    async def subscribe(self, users: Sequence[UserId]) -> dict[UserId, PresenceRecord]:
        self.watched |= set(users)
        return {
            user: self.presences.get(user, PresenceRecord(PresenceState.OFFLINE, 0, 0))
            for user in users
        }

    async def unsubscribe(self, users: Sequence[UserId]) -> None:
        self.watched -= set(users)

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId] | None:
        return None if chat in self.closed else self.members.get(chat, set()) & set(users)

    async def list_chats(self, user: UserId) -> list[UserChat]:
        zero = Seq(0)
        chats = [chat for chat, members in self.members.items() if user in members]
        return [UserChat(chat, zero, zero, zero, zero) for chat in chats]

    async def open_chat(self, chat: ChatId) -> None:
        if chat not in self.members:
            raise NotFound("chat")
        self.closed.discard(chat)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Alice and bob have a direct chat; alice and carol are in a group."""
    monkeypatch.setattr(subscriptions, "NOTIFY_INTERVAL_S", 0.05)
    world = World()
    world.members[direct_chat_id(ALICE, BOB)] = {ALICE, BOB}
    world.members[GROUP] = {ALICE, CAROL}
    yield world


async def test_subscribe_sends_presence_of_users_who_share_a_chat(world: World) -> None:
    """The subscriber and users without a common chat are ignored."""
    alice = Device(ALICE)
    world.set_presence(BOB, PresenceState.ONLINE)
    world.set_presence(UserId("dora"), PresenceState.ONLINE)

    await world.subscriptions.subscribe(alice, [ALICE, BOB, UserId("dora")])
    await world.subscriptions.subscribe(alice, [CAROL])

    assert sorted(alice.received) == [("bob", "online"), ("carol", "offline")]
    assert world.watched == {BOB, CAROL}


async def test_subscribe_loads_a_chat_that_is_not_in_redis(world: World) -> None:
    """An evicted group still counts as a common chat."""
    alice = Device(ALICE)
    world.closed.add(GROUP)

    await world.subscriptions.subscribe(alice, [CAROL])

    assert alice.received == [("carol", "offline")]


async def test_change_is_sent_to_members_only(world: World) -> None:
    """A removed member gets no more changes, even with an earlier subscription."""
    alice, bob = Device(ALICE), Device(BOB)
    world.members[GROUP].add(BOB)
    for device in (alice, bob):
        await world.subscriptions.subscribe(device, [CAROL])
    world.members[GROUP].discard(BOB)

    world.subscriptions.handle_change(CAROL, world.set_presence(CAROL, PresenceState.ONLINE))
    await eventually(lambda: len(alice.received) == 2)
    await eventually(lambda: bob.received == [("carol", "offline")])
    world.subscriptions.handle_change(CAROL, world.set_presence(CAROL, PresenceState.AWAY, 2))
    await eventually(lambda: len(alice.received) == 3)

    assert bob.received == [("carol", "offline")]


async def test_outdated_change_is_ignored(world: World) -> None:
    """Changes from two gateways may arrive out of order."""
    alice = Device(ALICE)
    world.set_presence(BOB, PresenceState.ONLINE, 5)
    await world.subscriptions.subscribe(alice, [BOB])

    world.subscriptions.handle_change(BOB, PresenceRecord(PresenceState.AWAY, 0, 4))
    world.subscriptions.handle_change(BOB, PresenceRecord(PresenceState.OFFLINE, 0, 6))
    await eventually(lambda: len(alice.received) == 2)

    assert alice.received == [("bob", "online"), ("bob", "offline")]


async def test_change_reverted_within_the_interval_is_not_sent(world: World) -> None:
    """Carol's change is sent after the interval, which shows that bob's was not sent."""
    alice = Device(ALICE)
    world.set_presence(BOB, PresenceState.ONLINE, 1)
    await world.subscriptions.subscribe(alice, [BOB])
    await world.subscriptions.subscribe(alice, [CAROL])

    world.subscriptions.handle_change(BOB, PresenceRecord(PresenceState.AWAY, 0, 2))
    world.subscriptions.handle_change(BOB, PresenceRecord(PresenceState.ONLINE, 0, 3))
    world.subscriptions.handle_change(CAROL, world.set_presence(CAROL, PresenceState.ONLINE))
    await eventually(lambda: ("carol", "online") in alice.received)

    assert alice.received == [("bob", "online"), ("carol", "offline"), ("carol", "online")]


async def test_refresh_finds_a_lost_change(world: World) -> None:
    """A gateway that died does not report that its users are offline."""
    alice = Device(ALICE)
    world.set_presence(BOB, PresenceState.ONLINE, 1)
    await world.subscriptions.subscribe(alice, [BOB])

    world.set_presence(BOB, PresenceState.OFFLINE, 1)  # the same version: no gateway published it
    await world.subscriptions.refresh()

    await eventually(lambda: alice.received[-1] == ("bob", "offline"))


async def test_last_subscriber_removes_the_subscription(world: World) -> None:
    """The last subscriber of a user removes the subscription, also in Redis."""
    alice, phone = Device(ALICE), Device(ALICE)
    for device in (alice, phone):
        await world.subscriptions.subscribe(device, [BOB])

    world.subscriptions.remove_subscriber(alice)
    await asyncio.sleep(0)
    assert world.watched == {BOB}

    world.subscriptions.remove_subscriber(phone)
    await eventually(lambda: not world.watched)


async def test_subscribe_above_the_limit_is_refused(world: World) -> None:
    """It is refused before any lookup."""
    alice = Device(ALICE)

    with pytest.raises(BadRequest, match="at most 3"):
        await world.subscriptions.subscribe(alice, [UserId(f"u{n}") for n in range(4)])

    assert not world.watched


async def test_subscribe_of_an_ended_session_adds_nothing(world: World) -> None:
    """Otherwise the subscription would never be removed."""
    alice = Device(ALICE)
    alice.is_live = False

    await world.subscriptions.subscribe(alice, [BOB])

    assert not world.watched


async def test_unsubscribe_ends_a_subscription_that_is_being_started(world: World) -> None:
    """Only the given users are affected; a later subscription is not."""
    alice = Device(ALICE)
    starting = asyncio.create_task(world.subscriptions.subscribe(alice, [BOB, CAROL]))
    await asyncio.sleep(0)

    world.subscriptions.unsubscribe(alice, [BOB])
    await starting

    assert alice.received == [("carol", "offline")]
    assert world.watched == {CAROL}
    await world.subscriptions.subscribe(alice, [BOB])
    assert world.watched == {BOB, CAROL}
    assert world.subscriptions._pending_by_subscriber == {}
