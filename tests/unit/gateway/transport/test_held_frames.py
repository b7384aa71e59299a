"""Frames that wait for a snapshot, also when the snapshot fails (guarantee P9)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import pytest

from chatserver.domain.cursor_coverage import Coverage
from chatserver.domain.ids import Epoch, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.errors import Unavailable
from chatserver.gateway.delivery.large_chat_channel import LargeChatPositions
from chatserver.gateway.session.session import Session
from chatserver.gateway.transport.connection import Phase
from chatserver.protocol import frames
from tests.support.servers.processes import eventually
from tests.unit.gateway.session_world import FakeConnection, FakeContext, welcome

pytestmark = pytest.mark.constants(
    {"chatserver.gateway.session.session_limits.HELD_TIMEOUT_S": 0.05}
)

OLD, NEW = Epoch("E1"), Epoch("E2")
OVERLOADED = 3002
UNKNOWN_FRAME, UNKNOWN_FRAME_WITH_ID = b'{"type":"dance"}', b'{"type":"dance","id":9}'


class FakeGateway(FakeContext):
    """A gateway with one session; the test completes its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot: asyncio.Future[frames.Reset] = asyncio.get_running_loop().create_future()
        self.state = InboxState(NEW, Seq(0), Seq(1), is_known=True)
        self.whole_epoch = NEW

    async def set_online(self, users: list[UserId]) -> list[InboxState]:
        return [self.state]

    async def open_for(self, user: UserId, start: Seq) -> LargeChatPositions:
        return LargeChatPositions([], {}, {})

    async def get_snapshot(
        self,
        user: UserId,
        state: InboxState,
        coverage: Coverage,
        large: Sequence[frames.LargeChat],
    ) -> frames.Reset:
        return await asyncio.shield(self.snapshot)

    def enter(self, session: Session, positions: LargeChatPositions) -> None:
        """There are no large chats."""


class World:
    """A session that was welcomed in one epoch when the next one begins."""

    def __init__(self) -> None:
        self.gateway, self.connection = FakeGateway(), FakeConnection()
        self.handler = welcome(self.gateway, self.connection, OLD, 5)
        self.session = self.handler.session
        self.session.go_live(Seq(5))

    async def begin_snapshot(self) -> None:
        """Let the session detect the new epoch."""
        self.session.compare(self.gateway.state)
        await eventually(lambda: self.session.state.is_held)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.connection.sent if frame["type"] == kind]


@pytest.fixture
async def world() -> World:
    """A session that holds frames for a short time."""
    return World()


def send_frame(request: int) -> bytes:
    return b'{"type":"send","id":%d,"chat":"c1","ref":"r%d","body":"hi"}' % (request, request)


async def test_frame_held_longer_than_the_timeout_is_refused(world: World) -> None:
    """If a tier hangs, the request fails within its deadline."""
    await world.begin_snapshot()

    for request in (7, 8):
        world.handler.handle_message(send_frame(request))
    await eventually(lambda: len(world.of_type("error")) == 2)

    assert [error["id"] for error in world.of_type("error")] == [7, 8]
    assert {error["code"] for error in world.of_type("error")} == {"unavailable"}
    assert all(error["temporary"] for error in world.of_type("error"))


async def test_frame_without_an_id_waits_for_the_snapshot(world: World) -> None:
    """Without its id, no error could report its loss to the client."""
    await world.begin_snapshot()

    world.handler.handle_message(UNKNOWN_FRAME)
    world.handler.handle_message(send_frame(7))
    await eventually(lambda: world.of_type("error"))
    assert len(world.of_type("error")) == 1
    world.gateway.snapshot.set_result(frames.Reset(frames.Cursor(NEW, 0), [], None))
    await eventually(lambda: len(world.of_type("error")) == 2)

    assert [frame["type"] for frame in world.connection.sent] == ["error", "reset", "error"]
    assert world.connection.sent[-1]["code"] == "bad_request"


@pytest.mark.constants({"chatserver.gateway.session.session_limits.HELD_TIMEOUT_S": 60.0})
async def test_held_frame_is_processed_when_the_snapshot_fails() -> None:
    """The session stays in its epoch and retries; held frames do not wait for the retry."""
    world = World()
    await world.begin_snapshot()

    world.handler.handle_message(UNKNOWN_FRAME_WITH_ID)
    world.gateway.snapshot.set_exception(Unavailable("down"))
    await eventually(lambda: world.of_type("error"))

    assert world.of_type("error")[0]["id"] == 9
    assert world.of_type("error")[0]["code"] == "bad_request"
    assert not world.session.state.is_held
    for task in world.gateway.tasks.running:
        task.cancel()


async def test_session_whose_snapshot_crashes_is_closed_with_bye(world: World) -> None:
    """After a bug in the server, no session may stay open without events and responses."""
    await world.begin_snapshot()

    world.gateway.snapshot.set_exception(ValueError("a bug"))
    await eventually(lambda: world.connection.phase is Phase.CLOSED)

    assert world.of_type("bye")[0]["code"] == OVERLOADED


# before the snapshot is complete


class SlowWarmTier(FakeGateway):
    """A gateway where loading a user blocks until the test makes it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.state = InboxState(NEW, Seq(0), Seq(5), is_known=False)
        self.loading: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.warm = self.sync = self
        self.reads: list[int] = []

    async def load_user(self, user: UserId) -> None:
        await asyncio.shield(self.loading)

    async def list_missed(self, user: UserId, after: Seq, limit: int) -> list[Any]:
        self.reads.append(after)
        return []


@pytest.mark.constants({"chatserver.gateway.session.session_limits.HELD_TIMEOUT_S": 60.0})
async def test_session_of_an_old_epoch_starts_from_the_inbox_head_at_its_snapshot(
    world: World,
) -> None:
    """Events that arrive before the snapshot are delivered once, in the new epoch."""
    gateway = world.session._context = world.handler._context = cast(Any, SlowWarmTier())
    snapshot_states: list[InboxState] = []

    async def get_snapshot(user: UserId, state: InboxState, *_: object) -> frames.Reset:
        snapshot_states.append(state)
        return frames.Reset(frames.Cursor(NEW, state.head), [], None)

    gateway.get_snapshot = get_snapshot

    world.session.compare(gateway.state)
    world.session.notify_seq(Seq(7))
    for _ in range(5):
        await asyncio.sleep(0)
    # Another process has loaded the user by now.
    gateway.state = dataclasses.replace(gateway.state, head=Seq(7), is_known=True)
    gateway.loading.set_exception(Unavailable("the warm tier is down"))
    await eventually(lambda: world.of_type("reset"))

    assert gateway.reads == []
    assert [state.head for state in snapshot_states] == [7]
