"""No device gets events of the next Redis epoch before its `reset` (guarantees P4 and P5)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import redis.asyncio

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.hot.bus.gateway_stream import NewSeq
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.inbox import Inboxes
from tests.integration.hot.support import redis_settings
from tests.support.stack import PATIENT, open_stack

DEADLINE_S = 60.0
BODY = b',"kind":"chat","chat":"%s","info":{"name":"of the next epoch"}}'


async def test_inbox_of_the_next_epoch_is_not_sent_before_the_reset(tmp_path: Path) -> None:
    """Another process writes to the empty Redis before this gateway notices the data loss."""
    async with contextlib.AsyncExitStack() as exits:
        stack = exits.enter_context(open_stack(tmp_path, fsync="no", env=PATIENT))
        alice, bob = [
            await exits.enter_async_context(stack.chat_of(user)) for user in ("alice", "bob")
        ]
        chat = await alice.open_direct(bob.user)
        await alice.send(chat, "hello", durability="stored")
        await bob.expect_bodies(chat, ["hello"])
        user = UserId(bob.user)
        head = max(event["seq"] for event in bob.of_type("event"))
        async with open_hot(redis_settings(stack.redis_url)) as hot:
            gateway_stream = hot.keys.gateway_stream(GatewayId(bob.gateway))

        client = redis.asyncio.Redis.from_url(stack.redis_url, socket_timeout=60)
        await client.flushall()
        await client.aclose()
        async with open_hot(redis_settings(stack.redis_url)) as hot:
            inboxes = Inboxes(hot)
            for _ in range(head + 3):
                (position,) = await inboxes.append_event([user], ChatId(chat), BODY % chat.encode())
            records = msgspec.msgpack.encode([NewSeq(user, position.seq)])
            await hot.write("XADD", gateway_stream, "*", "r", records)
        await bob.expect(lambda me: me.of_type("reset"), DEADLINE_S, "a reset")

        before_reset = bob.frames[: bob.frames.index(bob.of_type("reset")[0])]
        assert max(f["seq"] for f in before_reset if f["type"] == "event") == head
