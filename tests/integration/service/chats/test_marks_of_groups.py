"""What it costs when everybody in a group reads a message: figures, and the bound that is promised.

Up to 32 members hear of each other's marks; in a larger chat a mark is told to the devices of the
one who reads alone, and the others ask for it. So N readers make N inbox entries, not N x N.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
import redis

from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, redis_client
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

MEMBERS = 200
AT_ONCE = 25  # connections opened at a time
DEADLINE_S = 60.0
POLLS_PER_S = 300  # what workers ask Redis at rest, and this test while it waits


class Spent(NamedTuple):
    """Calls to Redis so far."""

    inbox_entries: int
    commands: int
    bytes_in: int
    bytes_out: int

    def since(self, before: Spent) -> Spent:
        """Return the difference."""
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(client: redis.Redis, users: list[str]) -> Spent:
    """Count. What counting costs is in the next count, and is the same each time."""
    wanted = {user.encode() for user in users}
    keys = client.scan_iter("*:inbox:*", count=10_000)
    mine = [key for key in keys if key.rsplit(b":", 1)[1] in wanted]
    pipeline = client.pipeline(transaction=False)
    for key in mine:
        pipeline.xlen(key)
    entries = sum(pipeline.execute())
    info = client.info("stats")
    sizes = (info["total_net_input_bytes"], info["total_net_output_bytes"])
    return Spent(entries, info["total_commands_processed"], *sizes)


def is_persisted(client: redis.Redis) -> bool:
    """Tell whether nothing waits to be persisted."""
    return not any(client.xlen(key) for key in client.scan_iter("*:backlog", count=10_000))


async def open_all(stack: Stack, users: list[str], exits: AsyncExitStack) -> list[RawChat]:
    """Connect everybody."""
    room = asyncio.Semaphore(AT_ONCE)

    async def open_one(user: str) -> RawChat:
        async with room:
            device = await stack.chat_of(user).start()
            exits.push_async_callback(device.abort)
            return device

    return await asyncio.gather(*map(open_one, users))


@pytest.mark.timeout(400)  # two hundred devices, and whole processes before that
async def test_group_of_200_reading_one_message_writes_one_inbox_entry_a_reader(
    stack: Stack,
    new_name: Callable[[str], str],
    record_property: Callable[[str, object], None],
) -> None:
    """Not one per pair of members; DynamoDB has all marks, and each reader's devices get them."""
    stem = new_name("reader")
    users = [f"{stem}-{number}" for number in range(MEMBERS)]
    async with AsyncExitStack() as exits:
        client = exits.enter_context(redis_client(stack.redis_url))
        people = await open_all(stack, users, exits)
        answer = await people[0].ask("create_chat", DEADLINE_S, ref="g", members=users[1:])
        chat = answer["chat"]["chat"]
        await people[0].say(chat, "read this")
        for device in people:
            await device.expect_frame("event", kind="message", chat=chat, deadline_s=DEADLINE_S)
        await eventually(
            functools.partial(is_persisted, client), DEADLINE_S, "the message is persisted"
        )
        idle = spent(client, users)
        counted = spent(client, users).since(idle)  # what the count itself costs
        before, start = spent(client, users), time.monotonic()

        await asyncio.gather(
            *(device.ask("mark", DEADLINE_S, chat=chat, read=1) for device in people[1:])
        )

        for device in people[1:]:
            await device.expect_frame("event", kind="read", chat=chat, deadline_s=DEADLINE_S)
        await eventually(
            functools.partial(is_persisted, client), DEADLINE_S, "the marks are persisted"
        )
        total, took_s = spent(client, users).since(before), time.monotonic() - start
        marks = await stack.read_marks(chat)
        heard = [device.of_type("event", kind="read", chat=chat) for device in people]

    readers = MEMBERS - 1  # who sent it has read it
    figures = {
        "members": MEMBERS,
        "readers": readers,
        "inbox_entries": total.inbox_entries,
        "inbox_entries_if_all_were_told": readers * MEMBERS,
        "redis_commands": total.commands - counted.commands,
        "redis_bytes_in": total.bytes_in - counted.bytes_in,
        "redis_bytes_out": total.bytes_out - counted.bytes_out,
    }
    for name, value in figures.items():
        record_property(name, value)
        print(f"{name}: {value}")  # noqa: T201  # shown by pytest -rP
    assert total.inbox_entries == readers
    assert [len(events) for events in heard] == [0] + [1] * readers
    assert {user: marks[user][0] for user in users[1:]} == dict.fromkeys(users[1:], 1)
    # Some for each reader, not for each pair.
    assert figures["redis_commands"] < 50 * MEMBERS + POLLS_PER_S * took_s


@pytest.mark.parametrize("members", [32, 33])
async def test_marks_are_told_to_all_members_up_to_32(
    stack: Stack, new_name: Callable[[str], str], members: int
) -> None:
    """In larger chats only the reader's own devices."""
    stem = new_name("reader")
    users = [f"{stem}-{number}" for number in range(members)]
    await stack.add_users(users)
    async with stack.chat_of(users[0]) as writer, stack.chat_of(users[1]) as reader:
        answer = await writer.ask("create_chat", ref="g", members=users[1:])
        chat = answer["chat"]["chat"]
        await writer.say(chat, "read this")
        await reader.expect_frame("event", kind="message", chat=chat)
        await reader.ask("mark", chat=chat, read=1)
        await reader.expect_frame("event", kind="read", chat=chat)
        await reader.say(chat, "I have")
        await writer.expect(lambda me: len(me.messages(chat)) == 2)

        if members <= 32:
            await writer.expect_frame("event", kind="read", chat=chat)
        else:
            # The fan-out of a mark begins before its answer: what was told would be here by now.
            assert not writer.of_type("event", kind="read", chat=chat)
