"""Memory in Redis that one hostile user can use in a day.

    python -m tests.benchmarks.memory_budget [--budget BYTES] [--out F.json] [WAYS...]

Each kind of request is repeated against a real Redis until a day's budget is charged: the burst and
86,400 seconds of refill, as if the clock of the bucket had been advanced. Requests go through the
use cases of a gateway, so that the charges after a request are those of the product. Messages are
persisted at once (DynamoDB is healthy), so the backlog is empty at the end. Prints, for each kind,
the number of requests, the charge, and the additional memory of Redis, with the inboxes of all
recipients. A kind that uses more than 20 MB is a wrong result.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec

from chatserver import config
from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.ids import Ref, derived_chat_id, new_id
from chatserver.domain.text_validation import BODY_CHARS_MAX
from chatserver.hot.bus.idempotent_responses import IdempotentResponses, StoredResponse
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import ANSWER_BYTES, MARK_BYTES
from chatserver.service.chats.read_marks import READ_MARKS_MEMBERS_MAX
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.benchmarks.support.memory_requests import HOSTILE, LONG_REF, Day
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import redis_client, redis_url_of

DAY_S = 86_400
DAY_BYTES_MAX = 20_000_000
GROUP = 256  # the maximum of members of a chat with inboxes
LONG = "😀" * BODY_CHARS_MAX  # 16,000 bytes
GROWING = "\U0001d160" * (BODY_CHARS_MAX // 3)  # normalization expands each character to three


def day_budget(limits: config.Limits) -> int:
    """Return the bytes that a user can be charged in a day."""
    return int(limits.memory.burst + limits.memory.per_s * DAY_S)


Way = Callable[[Day, int], Awaitable[None]]


def messages(body: str, members: int = 2, **more: Any) -> Way:
    """Send messages, a thousand per chat, so that no log is trimmed."""
    at_once = 1 if len(body) > 1000 or members > 2 else 50

    async def spend(day: Day, budget: int) -> None:
        while day.charged < budget:
            if members == 2:
                chats = [await day.new_direct()]
            else:  # alternate between two chats, so that each inbox entry contains its chat
                chat, others = await day.new_group(members)
                chats = [chat, (await day.new_group(members, others))[0]]
            for number in range(1000 // at_once):
                await day.send(chats[number % len(chats)], body, at_once, **more)
                day.count += at_once
                if day.charged >= budget:
                    break

    return spend


async def react_to_own(day: Day, budget: int) -> None:
    """React to each of the user's own short messages."""
    chat = await day.new_direct()
    for number in itertools.count():
        await day.send(chat, "hello")
        await day.change(frames.React(1, chat, 2 * number + 1, new_id() + LONG_REF, "👨‍👩‍👧‍👦"))
        day.count += 1
        if day.charged >= budget:
            return


def reactions(members: int) -> Way:
    """React to the longest messages of another user, a hundred per chat."""

    async def spend(day: Day, budget: int) -> None:
        while day.charged < budget:
            chat, others = await day.new_group(members)
            for _ in range(100):
                await day.send_as_others(chat, others[0], LONG, 1)
            for seq in range(1, 101):
                await day.change(frames.React(1, chat, seq, new_id() + LONG_REF, "👨‍👩‍👧‍👦"))
                day.count += 1
                if day.charged >= budget:
                    return

    return spend


async def edit(day: Day, budget: int) -> None:
    """Edit the user's own short messages into the longest ones."""
    chat, seq = await day.new_direct(), 1
    while day.charged < budget:
        await day.send(chat, "hello")
        seq = 1 + await day.change(frames.Edit(1, chat, seq, new_id() + LONG_REF, LONG))
        day.count += 1


async def hide(day: Day, budget: int) -> None:
    """Hide messages of other users, as many as one chat allows."""
    while day.charged < budget:
        chat, others = await day.new_group(3)
        await day.send_as_others(chat, others[0], "hello", 500)
        for seq in range(1, 501):
            await day.change(frames.Delete(1, chat, seq, new_id() + LONG_REF, "me"))
            day.count += 1
            if day.charged >= budget:
                return


async def mark(day: Day, budget: int) -> None:
    """Mark each message of other users as read, in the largest chat that reports read marks."""
    while day.charged < budget:
        chat, others = await day.new_group(READ_MARKS_MEMBERS_MAX)
        await day.send_as_others(chat, others[0], "hello", 1000)
        for seq in range(1, 1001):
            day.charged += MARK_BYTES
            await day.read_marks.move(HOSTILE, frames.Mark(chat, 1, seq))
            day.count += 1
            if day.charged >= budget:
                break
        await day.persist()


async def open_directs(day: Day, budget: int) -> None:
    """Open direct chats with new contacts, and send one message to each."""
    while day.charged < budget:
        await day.send(await day.new_direct(), "hello")
        day.count += 1


def groups(members: int) -> Way:
    """Create groups with members who have no chats yet."""

    async def spend(day: Day, budget: int) -> None:
        while day.charged < budget:
            await day.new_group(members)
            day.count += 1

    return spend


def invitations(size: int) -> Way:
    """Create groups and invite `size` new members twice."""

    async def spend(day: Day, budget: int) -> None:
        while day.charged < budget:
            chat, _ = await day.new_group(3)
            for version in (2, 3):
                users = day.contacts(size)
                frame = frames.Invite(1, chat, new_id() + LONG_REF, list(users))
                await day.change_group(chat, version, users, frame, is_new=True)
                day.count += 1

    return spend


async def set_roles(day: Day, budget: int) -> None:
    """Change a role repeatedly, in the chat with the most members."""
    chat, others = await day.new_group(GROUP)
    for version in itertools.count(2):
        frame = frames.SetRole(1, chat, new_id() + LONG_REF, others[0], "admin")
        await day.change_group(chat, version, others[:1], frame, is_new=False)
        day.count += 1
        if day.charged >= budget:
            return


def idle_chats(members: int) -> Way:
    """Read chats that were evicted from Redis."""

    async def spend(day: Day, budget: int) -> None:
        CALLER.set(RequestCaller(HOSTILE))
        while day.charged < budget:
            chat = derived_chat_id(HOSTILE, Ref(new_id()))
            await day.read_again(chat, day.contacts(members - 1))
            day.count += 1

    return spend


async def store_responses(day: Day, budget: int) -> None:
    """Send HTTP requests with an idempotency key, whose responses are stored."""
    answers = IdempotentResponses(day.hot)
    for _ in range(budget // ANSWER_BYTES + 1):
        name = derived_chat_id(HOSTILE, Ref(new_id()))[:22]
        ack = frames.Ack(0, new_id(), new_id(), 1, 1_795_000_000_000_000, False, "hot")
        answer = StoredResponse(new_id()[:22], 201, "application/json", msgspec.json.encode(ack))
        await answers.put(name, answer, HOSTILE)
        day.charged += ANSWER_BYTES
        day.count += 1


WAYS: dict[str, Way] = {
    "messages of 5 bytes": messages("hello"),
    "messages of 16 KB": messages(LONG),
    "messages of 5 KB that grow": messages(GROWING),
    "messages that expire": messages("hello", expires_s=86_400),
    "messages to 256 members": messages("hello", GROUP),
    "16 KB to 256 members": messages(LONG, GROUP),
    "messages and reactions": react_to_own,
    "reactions to 16 KB": reactions(3),
    "reactions in 256 members": reactions(GROUP),
    "edits of 16 KB": edit,
    "deletions for oneself": hide,
    "read marks to 32 members": mark,
    "direct chats": open_directs,
    "groups of 20": groups(20),
    "groups of 256": groups(GROUP),
    "invitations of 8": invitations(8),
    "invitations of 99": invitations(frames.INVITE_MAX),
    "roles in 256 members": set_roles,
    "idle direct chats": idle_chats(2),
    "idle groups of 256": idle_chats(GROUP),
    "HTTP responses": store_responses,
}


async def measure(url: str, way: str, budget: int) -> tuple[int, int, int]:
    """Spend a budget; return the number of requests, the charge and the memory that Redis added."""
    with redis_client(url) as client:
        client.flushall()
    async with open_hot(redis_settings(url)) as hot:
        day = Day(hot)
        await WAYS[way](day, 1)  # load the scripts and let Redis allocate its tables first
        day.charged = day.count = day.others_bytes = 0
        before = await day.used_bytes()
        await WAYS[way](day, budget)
        return day.count, day.charged, await day.used_bytes() - before - day.others_bytes


@benchmark(
    click.option("--budget", default=day_budget(config.Limits()), show_default=True),
    click.argument("ways", nargs=-1, type=click.Choice(list(WAYS))),
)
async def main(bench: Bench, budget: int, ways: tuple[str, ...]) -> Figures:
    url, figures = redis_url_of(bench.start_redis("everysec")), Figures()
    for way in ways or WAYS:
        count, charged, taken = await measure(url, way, budget)
        if taken > DAY_BYTES_MAX:
            bench.findings.add("over budget", f"{way}: {taken:,} bytes")
        sizes = {"charged_mb": round(charged / 1e6, 1), "redis_mb": round(taken / 1e6, 1)}
        figures[way] = {"requests": count, **sizes}
    return figures


if __name__ == "__main__":
    main()
