"""A new epoch whose snapshot is delayed: nothing of the epoch comes first, and retries stay few."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
import structlog

from chatserver.config import Gateway
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inbox_cursors import Coverage
from chatserver.domain.inboxes import InboxState
from chatserver.errors import Unavailable
from chatserver.gateway.delivery.large_chat_delivery import Channels
from chatserver.gateway.session import session as session_module
from chatserver.gateway.session.command_handler import CommandHandler
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_context import RECOVERIES_MAX, HotPathCounters, SessionTasks
from chatserver.gateway.transport.connection import Phase
from chatserver.protocol import frames
from chatserver.service.history.sync import Missed
from tests.support.servers.processes import eventually
from tests.unit.gateway.delivery.large_chat_world import (
    ALICE,
    CHAT,
    EPOCH,
    NEXT_EPOCH,
    Tier,
    body_of,
    entry_of,
)


class Wire:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.phase = Phase.OPEN
        self.peer = "192.0.2.1"
        self.is_slow = False

    def start_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        """Nothing here is late."""

    def send_text(self, payload: bytes) -> None:
        self.sent.append(msgspec.json.decode(payload))

    def send_frame(self, frame: bytes) -> None:
        self.send_text(frame[frame.index(b"{") :])

    async def wait_for_room(self) -> None:
        await asyncio.sleep(0)

    def close(self, code: int, reason: str) -> None:
        self.phase = Phase.CLOSED


class Unlimited:
    """An allowance that is never used up."""

    def take(self, cost: int) -> bool:
        return True


class Office:
    """A gateway with one session in one large chat, whose warm tier can be down."""

    def __init__(self) -> None:
        self.settings = Gateway()
        self.counters = HotPathCounters()
        self.tasks = SessionTasks()
        self.recoveries = asyncio.Semaphore(RECOVERIES_MAX)
        self.tier = Tier(top=12)
        self.is_warm_down = False
        self.is_up = self.is_loaded = True
        self.is_lost_by_reading = False
        self.snapshots = self.lines = self.pages = 0
        # One object stands for everything a session reaches through its context.
        self.container = self.presence = self.requests = self.hot = self.chats = self
        self.sync = self.warm = self
        self.missed: list[Missed] = []
        self.sessions: list[Session] = []
        self.channels = Channels(
            subscriptions=cast(Any, self.tier),
            chat_log=cast(Any, self.tier),
            open_chat=self.tier.open,
            sessions_of=lambda user: cast(Any, self.sessions),
            spawn=self.tasks.spawn,
            device_epoch=lambda: self.whole_epoch,
        )

    @property
    def whole_epoch(self) -> Epoch:
        return self.tier.epoch

    def running(self, prefix: str) -> int:
        """Return the number of unfinished tasks with this name prefix."""
        return sum(task.get_name().startswith(prefix) for task in self.tasks.running)

    async def announce(self, users: list[UserId]) -> list[InboxState]:
        await asyncio.sleep(0)
        return [InboxState(self.whole_epoch, Seq(0), Seq(1), is_known=self.is_loaded)]

    async def load_user(self, user: UserId) -> None:
        raise Unavailable("warm tier: call not queued")

    async def list_missed(self, user: UserId, after: Seq, limit: int) -> list[Missed]:
        return [each for each in self.missed if each.seq > after]

    async def get_snapshot(
        self,
        user: UserId,
        state: InboxState,
        coverage: Coverage,
        request: None,
        large: Sequence[frames.LargeChat],
    ) -> frames.TooLong | frames.Reset:
        self.snapshots += 1
        await self._read_warm()
        kind = frames.TooLong if coverage is Coverage.TOO_LONG else frames.Reset
        return kind(frames.Cursor(state.epoch, state.head), [self._line()], None)

    async def answer(self, user: UserId, frame: frames.History) -> frames.HistoryPage:
        self.pages += 1
        if self.is_lost_by_reading:
            self.lose_redis(top=3)
        await asyncio.sleep(0)
        return frames.HistoryPage(frame.id, frame.chat, [], "hot", False, 0, [])

    async def get_summary(self, user: UserId, chat: ChatId) -> frames.ChatSummary:
        self.lines += 1
        await self._read_warm()
        return self._line()

    async def _read_warm(self) -> None:
        await asyncio.sleep(0)
        if self.is_warm_down:
            raise Unavailable("dynamodb: not connected")

    def _line(self) -> frames.ChatSummary:
        return frames.ChatSummary(CHAT, "group", top=self.tier.top)

    def lose_redis(self, top: int) -> None:
        """Start another epoch, in which the chat has `top` entries."""
        self.tier.epoch = NEXT_EPOCH
        self.tier.entries = Tier(top).entries
        self.channels.forget_epoch()

    def commit(self) -> None:
        """Commit an entry in the large chat and push it to the gateway."""
        entry = self.tier.commit()
        self.channels.push(CHAT, self.tier.epoch, entry.seq, body_of(entry))

    async def beat(self, times: int) -> None:
        """Run the periodic refresh several times: compare sessions and channels."""
        for _ in range(times):
            (state,) = await self.announce([ALICE])
            for each in self.sessions:
                each.compare(state)
            await self.channels.refresh()
            await asyncio.sleep(0)


class World:
    """A live session of the first epoch, in step with its large chat."""

    def __init__(self) -> None:
        self.office, self.wire = Office(), Wire()
        self.handler = CommandHandler(
            context=cast(Any, self.office),
            connection=cast(Any, self.wire),
            directory=cast(Any, self.office),
            admission=cast(Any, self.office),
            on_authenticated=lambda connection: None,
            on_end=lambda session: None,
        )
        self.session = self.handler.session
        self.handler._others_allowed = self.handler._memory_allowed = cast(Any, Unlimited())
        self.session.user = ALICE
        self.session.state.hello()
        self.session.state.welcome(EPOCH, Seq(5))
        self.office.sessions.append(self.session)

    async def open(self) -> None:
        entry = await self.office.channels.open_for(ALICE, Seq(5))
        self.session.go_live(Seq(5))
        self.session.enter_large_chats(entry, is_loaded=True)

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.wire.sent]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A session whose retries come at once."""
    monkeypatch.setattr(session_module, "RETRY_S", 0.001)
    monkeypatch.setattr(session_module, "RETRY_S_MAX", 0.01)
    made = World()
    await made.open()
    yield made
    made.session.end()
    await asyncio.sleep(0)  # let new tasks start
    for task in made.office.tasks.running:
        task.cancel()
    await asyncio.gather(*made.office.tasks.running, return_exceptions=True)


async def test_new_epoch_with_a_delayed_snapshot_sends_nothing_before_its_reset(
    world: World,
) -> None:
    """A device gets no event and no `too_long` of an epoch before the `reset` that begins it."""
    office = world.office
    office.commit()
    assert world.types() == ["event"]
    office.is_warm_down = True
    office.lose_redis(top=3)

    await office.beat(3)
    office.commit()
    await office.beat(3)
    await eventually(lambda: office.snapshots > 5)
    office.commit()
    assert world.types() == ["event"]
    office.is_warm_down = False
    await eventually(lambda: "reset" in world.types())
    await eventually(lambda: CHAT in office.channels._channels)
    office.commit()
    await eventually(lambda: len(world.types()) == 3)

    assert world.types() == ["event", "reset", "event"]
    assert world.wire.sent[1]["chats"][0]["top"] == 5
    assert (world.wire.sent[2]["epoch"], world.wire.sent[2]["cs"]) == (NEXT_EPOCH, 6)


@pytest.mark.parametrize("is_lost_before", [True, False])
async def test_history_of_a_new_epoch_is_refused_before_its_reset(
    world: World, is_lost_before: bool
) -> None:
    """A page of the new epoch among entries of the old one would hide those that differ."""
    office, request = world.office, b'{"type":"history","id":7,"chat":"%s"}' % CHAT.encode()
    office.is_warm_down = True
    if is_lost_before:
        office.lose_redis(top=3)
    office.is_lost_by_reading = not is_lost_before

    world.handler.received(request)
    await eventually(lambda: world.types() == ["error"])
    refused = world.wire.sent[0]
    office.is_warm_down = office.is_lost_by_reading = False
    await office.beat(1)
    await eventually(lambda: "reset" in world.types())
    world.handler.received(request)
    await eventually(lambda: world.types()[-1] == "page")

    assert (refused["id"], refused["code"], refused["temporary"]) == (7, "unavailable", True)


async def test_entries_that_leave_the_log_during_an_outage_cost_one_task_for_each_chat(
    world: World,
) -> None:
    """However often a chat is lost, one task per session and chat retries, and logs once."""
    office = world.office
    office.is_warm_down = True

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            world.session.recover_chat(CHAT)
            await asyncio.sleep(0)
        await eventually(lambda: office.lines > 5)
        assert office.running("summary-") == 1

    assert [each["event"] for each in logs].count("session.summary_delayed") == 1
    office.is_warm_down = False
    await eventually(lambda: "too_long" in world.types())
    assert world.types() == ["too_long"]


async def test_no_snapshot_is_made_of_chats_that_are_not_loaded(world: World) -> None:
    """A Redis that was emptied knows only some chats of a user: the `reset` waits for them all."""
    office = world.office
    office.is_loaded = False
    office.lose_redis(top=3)

    with structlog.testing.capture_logs() as logs:
        await office.beat(3)
        await eventually(lambda: "session.snapshot_delayed" in [each["event"] for each in logs])
    assert (office.snapshots, world.types()) == (0, [])
    office.is_loaded = True
    await eventually(lambda: world.types() == ["reset"])


async def test_line_that_is_read_while_the_user_is_removed_is_not_sent(world: World) -> None:
    """The removal comes by the inbox and is the last of the chat: nothing older follows it."""
    office = world.office
    office.is_warm_down = True
    office.channels.detach(world.session)
    world.session.recover_chat(CHAT)
    await eventually(lambda: office.lines > 1)

    removal = body_of(entry_of(13, kind="member", user=ALICE, role=""))
    office.missed = [Missed(Seq(6), removal)]
    world.session.notify_seq(Seq(6))
    await eventually(lambda: world.types() == ["event"])
    office.is_warm_down = False
    await eventually(lambda: not office.running("summary-"))
    office.commit()

    assert world.types() == ["event"]


async def test_new_epoch_seen_by_many_refreshes_runs_one_recovery(world: World) -> None:
    """Each look at the inbox finds the new epoch; one task retries the snapshot, and logs once."""
    office = world.office
    office.is_warm_down = True
    office.lose_redis(top=3)

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            await office.beat(1)
            assert office.running("recovery-") <= 1
        await eventually(lambda: office.snapshots > 5)

    assert len(office.tasks.running) == 1
    assert [each["event"] for each in logs].count("session.snapshot_delayed") == 1


async def test_session_opened_in_an_epoch_that_is_over_enters_no_large_chat(
    world: World,
) -> None:
    """A session whose hello raced with the loss of Redis starts from a `reset`."""
    office = world.office
    entry = await office.channels.open_for(ALICE, Seq(5))
    office.channels.detach(world.session)
    office.lose_redis(top=3)

    world.session.enter_large_chats(entry, is_loaded=True)
    office.commit()
    await eventually(lambda: "reset" in world.types())

    assert world.types() == ["reset"]


async def test_session_beyond_the_bound_waits_until_another_has_its_snapshot(world: World) -> None:
    """After a loss, thousands of sessions would otherwise fill the queues of the warm tier."""
    office = world.office
    office.recoveries = asyncio.Semaphore(1)
    await office.recoveries.acquire()
    office.lose_redis(top=3)

    await office.beat(3)
    assert (office.running("recovery-"), office.snapshots, world.types()) == (1, 0, [])
    office.recoveries.release()

    await eventually(lambda: world.types() == ["reset"])
    assert not office.recoveries.locked()
