"""Cost of read marks when all members of a group read a message: measurements and a limit.

Up to 32 members receive each other's marks. In a larger chat, a mark is sent only to the devices of
the reader, and others query it. So N readers write N inbox entries, not N x N.
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
from tests.support.stack import NewName, Stack

MEMBERS = 200
AT_ONCE = 25  # connections that are opened at once
DEADLINE_S = 60.0
POLLS_PER_S = 300  # Redis commands of idle workers, and of this test while it waits


class Counters(NamedTuple):
    """The inbox entries of the users, and the commands and bytes of Redis."""

    inbox_entries: int
    commands: int
    bytes_in: int
    bytes_out: int

    def since(self, before: Counters) -> Counters:
        """Return the difference."""
        return Counters(*(now - then for now, then in zip(self, before, strict=True)))


def read_counters(client: redis.Redis, users: list[str]) -> Counters:
    """Read the counters. The next call includes the cost of this one, which is always the same."""
    wanted = {user.encode() for user in users}
    keys = client.scan_iter("*:inbox:*", count=10_000)
    inboxes = [key for key in keys if key.rsplit(b":", 1)[1] in wanted]
    pipeline = client.pipeline(transaction=False)
    for key in inboxes:
        pipeline.xlen(key)
    entries = sum(pipeline.execute())
    info = client.info("stats")
    sizes = (info["total_net_input_bytes"], info["total_net_output_bytes"])
    return Counters(entries, info["total_commands_processed"], *sizes)


def is_persisted(client: redis.Redis) -> bool:
    """Return whether all backlogs are empty."""
    return not any(client.xlen(key) for key in client.scan_iter("*:backlog", count=10_000))


async def open_all(stack: Stack, users: list[str], exits: AsyncExitStack) -> list[RawChat]:
    """Connect all users."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def open_one(user: str) -> RawChat:
        async with slots:
            device = await stack.chat_of(user).start()
            exits.push_async_callback(device.abort)
            return device

    return await asyncio.gather(*map(open_one, users))


@pytest.mark.timeout(400)  # two hundred devices, after the processes have started
async def test_group_of_200_reading_one_message_writes_one_inbox_entry_per_reader(
    stack: Stack,
    new_name: NewName,
    record_property: Callable[[str, object], None],
) -> None:
    """DynamoDB has all marks, and each reader's devices receive their own mark."""
    stem = new_name("reader")
    users = [f"{stem}-{number}" for number in range(MEMBERS)]
    async with AsyncExitStack() as exits:
        client = exits.enter_context(redis_client(stack.redis_url))
        people = await open_all(stack, users, exits)
        chat = await people[0].create_group(users[1:], deadline_s=DEADLINE_S)
        await people[0].send(chat, "read this")
        for device in people:
            await device.expect_frame("event", kind="message", chat=chat, deadline_s=DEADLINE_S)
        await eventually(
            functools.partial(is_persisted, client), DEADLINE_S, "the message is persisted"
        )
        idle = read_counters(client, users)
        overhead = read_counters(client, users).since(idle)  # the cost of reading the counters
        before, start = read_counters(client, users), time.monotonic()

        await asyncio.gather(
            *(device.request("mark", DEADLINE_S, chat=chat, read=1) for device in people[1:])
        )

        for device in people[1:]:
            await device.expect_frame("event", kind="read", chat=chat, deadline_s=DEADLINE_S)
        await eventually(
            functools.partial(is_persisted, client), DEADLINE_S, "the marks are persisted"
        )
        total, took_s = read_counters(client, users).since(before), time.monotonic() - start
        marks = await stack.read_marks(chat)
        received = [device.of_type("event", kind="read", chat=chat) for device in people]

    readers = MEMBERS - 1  # the sender has read it
    figures = {
        "members": MEMBERS,
        "readers": readers,
        "inbox_entries": total.inbox_entries,
        "inbox_entries_if_sent_to_all": readers * MEMBERS,
        "redis_commands": total.commands - overhead.commands,
        "redis_bytes_in": total.bytes_in - overhead.bytes_in,
        "redis_bytes_out": total.bytes_out - overhead.bytes_out,
    }
    for name, value in figures.items():
        record_property(name, value)
        print(f"{name}: {value}")  # noqa: T201  # shown by pytest -rP
    assert total.inbox_entries == readers
    assert [len(events) for events in received] == [0] + [1] * readers
    assert {user: marks[user][0] for user in users[1:]} == dict.fromkeys(users[1:], 1)
    # Proportional to the number of readers and not to the pairs of members.
    assert figures["redis_commands"] < 50 * MEMBERS + POLLS_PER_S * took_s


@pytest.mark.parametrize("members", [32, 33])
async def test_marks_are_sent_to_all_members_up_to_32(
    stack: Stack, new_name: NewName, members: int
) -> None:
    """In larger chats only the reader's own devices receive them."""
    stem = new_name("reader")
    users = [f"{stem}-{number}" for number in range(members)]
    await stack.add_users(users)
    async with stack.chat_of(users[0]) as writer, stack.chat_of(users[1]) as reader:
        chat = await writer.create_group(users[1:])
        await writer.send(chat, "read this")
        await reader.expect_frame("event", kind="message", chat=chat)
        await reader.request("mark", chat=chat, read=1)
        await reader.expect_frame("event", kind="read", chat=chat)
        await reader.send(chat, "I have")
        await writer.expect(lambda me: len(me.messages(chat)) == 2)

        if members <= 32:
            await writer.expect_frame("event", kind="read", chat=chat)
        else:
            # The fan-out of a mark begins before its response, so the event would have arrived by
            # now.
            assert not writer.of_type("event", kind="read", chat=chat)
