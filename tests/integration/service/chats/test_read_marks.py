"""Read marks whose calls to Redis get no reply: a repeat notifies everybody once."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.errors import Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import MARK_BYTES
from chatserver.service.chats.read_marks import ReadMarks
from tests.integration.hot.support import ALICE, BOB, CAROL, CHAT, redis_settings
from tests.unit.service.builders import KnownAudiences, audience_of

MEMBERS = [ALICE, BOB, CAROL]  # each in another partition of 64


class Devices:
    """Records who was notified."""

    def __init__(self) -> None:
        self.notified: list[tuple[UserId, Seq]] = []

    def notify_seq(self, user: UserId, seq: Seq, gateways: tuple[GatewayId, ...]) -> None:
        self.notified.append((user, seq))


async def load_nothing(user: UserId) -> None:
    """Find nothing in DynamoDB."""


async def count_events(hot: HotClient) -> list[int]:
    """Return the length of each member's inbox."""
    return [await hot.call("XLEN", hot.keys.inbox(user)) for user in MEMBERS]


@pytest.mark.parametrize("lost", range(4))  # the script that moves marks, and one per partition
async def test_mark_repeated_after_a_lost_reply_notifies_each_member_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Redis has run the script. Further repeats add nothing to inboxes and charge nothing."""
    devices, charged, calls = Devices(), list[int](), 0
    async with open_hot(redis_settings(redis_url, partitions=64)) as hot:
        assert len({hot.keys.get_partition(user) for user in MEMBERS}) == len(MEMBERS)
        gate = f"{hot.get_epoch(hot.keys.get_partition(CHAT))}:1"
        await hot.call("HSET", hot.keys.chat(CHAT), "seq", 5, "gate", gate)
        await hot.call("HSET", hot.keys.box(ALICE), f"c:{CHAT}", 0)
        marks = ReadMarks(
            inboxes=Inboxes(hot),
            audiences=KnownAudiences(audience_of(*MEMBERS)),
            load_user=load_nothing,
            devices=devices,
            charge=lambda user, size_bytes: charged.append(size_bytes),
        )
        run = hot.run

        async def run_and_lose_a_reply(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            reply = await run(*args, **kwargs)
            calls += 1
            if calls == lost + 1:
                raise Unavailable("Redis: no reply")
            return reply

        monkeypatch.setattr(hot, "run", run_and_lose_a_reply)
        frame = frames.Mark(ChatId(CHAT), read=5)
        with pytest.raises(Unavailable):
            await marks.move(ALICE, frame)

        await marks.move(ALICE, frame)

        assert await count_events(hot) == [1, 1, 1]
        assert devices.notified == [(user, 1) for user in MEMBERS]
        for _ in range(10):
            await marks.move(ALICE, frame)
        assert await count_events(hot) == [1, 1, 1]
        assert sum(charged) <= 2 * MARK_BYTES
