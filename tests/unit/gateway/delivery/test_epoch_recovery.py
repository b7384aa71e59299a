"""A new epoch whose snapshot is delayed: no event precedes its `reset`, retries are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
import structlog

from chatserver.domain.cursor_coverage import Coverage
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.errors import Unavailable
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.session import session as session_module
from chatserver.gateway.session.session import Session
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
from tests.unit.gateway.session_world import FakeConnection, FakeContext, Unlimited, welcome


class FakeGateway(FakeContext):
    """A gateway with one session in one large chat, whose warm tier can be down."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(top=12)
        self.is_warm_down = False
        self.is_up = self.is_loaded = True
        self.is_redis_lost_on_read = False
        self.snapshots = self.summaries_read = self.pages = 0
        self.chats = self.sync = self.warm = self
        self.missed: list[Missed] = []
        self.sessions: list[Session] = []
        self.channels = LargeChatDelivery(
            subscriptions=cast(Any, self.tier),
            chat_log=cast(Any, self.tier),
            open_chat=self.tier.open,
            list_sessions=lambda user: cast(Any, self.sessions),
            spawn=self.tasks.spawn,
            device_epoch=lambda: self.whole_epoch,
        )

    @property
    def whole_epoch(self) -> Epoch:
        return self.tier.epoch

    def running(self, prefix: str) -> int:
        """Return the number of unfinished tasks with this name prefix."""
        return sum(task.get_name().startswith(prefix) for task in self.tasks.running)

    async def set_online(self, users: list[UserId]) -> list[InboxState]:
        await asyncio.sleep(0)
        return [InboxState(self.whole_epoch, Seq(0), Seq(1), is_known=self.is_loaded)]

    async def load_user(self, user: UserId) -> None:
        raise Unavailable("warm tier: cannot queue the call")

    async def list_missed(self, user: UserId, after: Seq, limit: int) -> list[Missed]:
        return [each for each in self.missed if each.seq > after]

    async def get_snapshot(
        self,
        user: UserId,
        state: InboxState,
        coverage: Coverage,
        large: Sequence[frames.LargeChat],
    ) -> frames.TooLong | frames.Reset:
        self.snapshots += 1
        await self._read_warm()
        kind = frames.TooLong if coverage is Coverage.TOO_LONG else frames.Reset
        return kind(frames.Cursor(state.epoch, state.head), [self._summary()], None)

    async def handle(self, user: UserId, frame: frames.History) -> frames.HistoryPage:
        self.pages += 1
        if self.is_redis_lost_on_read:
            self.lose_redis(top=3)
        await asyncio.sleep(0)
        return frames.HistoryPage(frame.id, frame.chat, [], "hot", False, 0, [])

    async def get_summary(self, user: UserId, chat: ChatId) -> frames.ChatSummary:
        self.summaries_read += 1
        await self._read_warm()
        return self._summary()

    async def _read_warm(self) -> None:
        await asyncio.sleep(0)
        if self.is_warm_down:
            raise Unavailable("dynamodb: not connected")

    def _summary(self) -> frames.ChatSummary:
        return frames.ChatSummary(CHAT, "group", top=self.tier.top)

    def lose_redis(self, top: int) -> None:
        """Start another epoch, in which the chat has `top` entries."""
        self.tier.epoch = NEXT_EPOCH
        self.tier.entries = Tier(top).entries
        self.channels.handle_epoch_change()

    def commit(self) -> None:
        """Commit an entry in the large chat and push it to the gateway."""
        entry = self.tier.commit()
        self.channels.push(CHAT, self.tier.epoch, entry.seq, body_of(entry))

    async def refresh(self, times: int) -> None:
        """Run the periodic refresh several times: compare sessions and channels."""
        for _ in range(times):
            (state,) = await self.set_online([ALICE])
            for each in self.sessions:
                each.compare(state)
            await self.channels.refresh()
            await asyncio.sleep(0)


class World:
    """A live session of the first epoch that has every entry of its large chat."""

    def __init__(self) -> None:
        self.gateway, self.connection = FakeGateway(), FakeConnection()
        self.handler = welcome(self.gateway, self.connection, EPOCH, 5)
        self.session = self.handler.session
        self.handler._others_allowed = self.handler._memory_allowed = cast(Any, Unlimited())
        self.gateway.sessions.append(self.session)

    async def open(self) -> None:
        entry = await self.gateway.channels.open_for(ALICE, Seq(5))
        self.session.go_live(Seq(5))
        self.session.enter_large_chats(entry, is_loaded=True)

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.connection.sent]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A session that retries without a delay."""
    monkeypatch.setattr(session_module, "RETRY_S", 0.001)
    monkeypatch.setattr(session_module, "RETRY_S_MAX", 0.01)
    new_world = World()
    await new_world.open()
    yield new_world
    new_world.session.end()
    await asyncio.sleep(0)  # let new tasks start
    for task in new_world.gateway.tasks.running:
        task.cancel()
    await asyncio.gather(*new_world.gateway.tasks.running, return_exceptions=True)


async def test_new_epoch_with_a_delayed_snapshot_sends_nothing_before_its_reset(
    world: World,
) -> None:
    """The `reset` of an epoch precedes its events and its `too_long`."""
    gateway = world.gateway
    gateway.commit()
    assert world.types() == ["event"]
    gateway.is_warm_down = True
    gateway.lose_redis(top=3)

    await gateway.refresh(3)
    gateway.commit()
    await gateway.refresh(3)
    await eventually(lambda: gateway.snapshots > 5)
    gateway.commit()
    assert world.types() == ["event"]
    gateway.is_warm_down = False
    await eventually(lambda: "reset" in world.types())
    await eventually(lambda: CHAT in gateway.channels._channels)
    gateway.commit()
    await eventually(lambda: len(world.types()) == 3)

    assert world.types() == ["event", "reset", "event"]
    assert world.connection.sent[1]["chats"][0]["top"] == 5
    assert (world.connection.sent[2]["epoch"], world.connection.sent[2]["cs"]) == (NEXT_EPOCH, 6)


@pytest.mark.parametrize("is_lost_before", [True, False])
async def test_history_of_a_new_epoch_is_refused_before_its_reset(
    world: World, is_lost_before: bool
) -> None:
    """The client would mix a page of the new epoch with entries of the old one."""
    gateway, request = world.gateway, b'{"type":"history","id":7,"chat":"%s"}' % CHAT.encode()
    gateway.is_warm_down = True
    if is_lost_before:
        gateway.lose_redis(top=3)
    gateway.is_redis_lost_on_read = not is_lost_before

    world.handler.handle_message(request)
    await eventually(lambda: world.types() == ["error"])
    refused = world.connection.sent[0]
    gateway.is_warm_down = gateway.is_redis_lost_on_read = False
    await gateway.refresh(1)
    await eventually(lambda: "reset" in world.types())
    world.handler.handle_message(request)
    await eventually(lambda: world.types()[-1] == "page")

    assert (refused["id"], refused["code"], refused["temporary"]) == (7, "unavailable", True)


async def test_entries_trimmed_during_an_outage_start_one_task_for_each_chat(
    world: World,
) -> None:
    """Repeated recovery of a chat runs one task per session and chat, which logs once."""
    gateway = world.gateway
    gateway.is_warm_down = True

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            world.session.recover_chat(CHAT)
            await asyncio.sleep(0)
        await eventually(lambda: gateway.summaries_read > 5)
        assert gateway.running("summary-") == 1

    assert [each["event"] for each in logs].count("session.summary_delayed") == 1
    gateway.is_warm_down = False
    await eventually(lambda: "too_long" in world.types())
    assert world.types() == ["too_long"]


async def test_snapshot_with_chats_not_loaded_is_delayed(world: World) -> None:
    """An emptied Redis has only some chats of a user: the `reset` waits for all of them."""
    gateway = world.gateway
    gateway.is_loaded = False
    gateway.lose_redis(top=3)

    with structlog.testing.capture_logs() as logs:
        await gateway.refresh(3)
        await eventually(lambda: "session.snapshot_delayed" in [each["event"] for each in logs])
    assert (gateway.snapshots, world.types()) == (0, [])
    gateway.is_loaded = True
    await eventually(lambda: world.types() == ["reset"])


async def test_summary_read_during_removal_of_the_user_is_not_sent(world: World) -> None:
    """The removal arrives in the inbox; no older state of the chat may follow it."""
    gateway = world.gateway
    gateway.is_warm_down = True
    gateway.channels.detach(world.session)
    world.session.recover_chat(CHAT)
    await eventually(lambda: gateway.summaries_read > 1)

    removal = body_of(entry_of(13, kind="member", user=ALICE, role=""))
    gateway.missed = [Missed(Seq(6), removal)]
    world.session.notify_seq(Seq(6))
    await eventually(lambda: world.types() == ["event"])
    gateway.is_warm_down = False
    await eventually(lambda: not gateway.running("summary-"))
    gateway.commit()

    assert world.types() == ["event"]


async def test_new_epoch_seen_by_many_refreshes_runs_one_recovery(world: World) -> None:
    """Each refresh finds the new epoch; one task retries the snapshot, and logs once."""
    gateway = world.gateway
    gateway.is_warm_down = True
    gateway.lose_redis(top=3)

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            await gateway.refresh(1)
            assert gateway.running("recovery-") <= 1
        await eventually(lambda: gateway.snapshots > 5)

    assert len(gateway.tasks.running) == 1
    assert [each["event"] for each in logs].count("session.snapshot_delayed") == 1


async def test_session_opened_in_an_old_epoch_enters_no_large_chat(
    world: World,
) -> None:
    """A session whose hello raced with the loss of Redis starts from a `reset`."""
    gateway = world.gateway
    entry = await gateway.channels.open_for(ALICE, Seq(5))
    gateway.channels.detach(world.session)
    gateway.lose_redis(top=3)

    world.session.enter_large_chats(entry, is_loaded=True)
    gateway.commit()
    await eventually(lambda: "reset" in world.types())

    assert world.types() == ["reset"]


async def test_recovery_above_the_limit_waits_for_another_session(world: World) -> None:
    """Without the limit, thousands of sessions would fill the queues of the warm tier."""
    gateway = world.gateway
    gateway.recoveries = asyncio.Semaphore(1)
    await gateway.recoveries.acquire()
    gateway.lose_redis(top=3)

    await gateway.refresh(3)
    assert (gateway.running("recovery-"), gateway.snapshots, world.types()) == (1, 0, [])
    gateway.recoveries.release()

    await eventually(lambda: world.types() == ["reset"])
    assert not gateway.recoveries.locked()
