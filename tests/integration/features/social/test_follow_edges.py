"""Follows: edges in both directions and exact counts, despite races, blocks and conflicts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import Conflict, Forbidden, Unavailable
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import Count, CountQueue
from chatserver.features.social.model import Change
from chatserver.features.social.service.follows import Follows
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.warm.dynamo.client import Item
from tests.integration.features.social.support import (
    SocialRows,
    count_all,
    edges_of,
    make_counters_worker,
    make_user_ids,
    scan_all,
    social_rows_of,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users

USERS = make_user_ids("u", 4)
TASKS = 16
STEPS = 8
CONFLICT = (
    400,
    {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}],
    },
)


def follows_of(container: StorageContainer, rows: SocialRows) -> Follows:
    """Return the follow service with the fault injection of the test's tables."""
    made = container.get(SocialContainer)
    return Follows(
        graph=rows.graph,
        profiles=rows.profiles,
        queue=made.queue,
        backfill=made.follows._backfill,
        clock=SystemClock(),
    )


async def read_edges(rows: SocialRows) -> set[tuple[str, str]]:
    """Read all edges in one transaction, and check that both directions are equal."""
    table = rows.tables.settings.table_prefix + "social"
    pairs = [(user, other) for user in USERS for other in USERS if user != other]
    keys = [(f"u#{user}#following", f"u#{other}") for user, other in pairs]
    keys += [(f"u#{other}#follower", f"u#{user}") for user, other in pairs]
    gets = [
        {"Get": {"TableName": table, "Key": {"PK": {"S": key[0]}, "SK": {"S": key[1]}}}}
        for key in keys
    ]
    answer = await rows.tables.client.call("transact_get_items", {"TransactItems": gets})
    found: list[Item] = [response.get("Item", {}) for response in answer["Responses"]]
    following = {pair for pair, item in zip(pairs, found[: len(pairs)], strict=True) if item}
    followers = {pair for pair, item in zip(pairs, found[len(pairs) :], strict=True) if item}
    assert following == followers
    return {(str(user), str(other)) for user, other in following}


async def check_counts(rows: SocialRows, users: Sequence[str]) -> None:
    """Check that the stored counts equal the numbers of edges."""
    edges, _ = edges_of(stored := await rows.all())
    for user in users:
        counts = stored.get((f"u#{user}", "count"), {})
        assert counts.get("follower#", 0) == sum(other == user for _, other in edges), user
        assert counts.get("following#", 0) == sum(one == user for one, _ in edges), user


@pytest.mark.parametrize("seed", range(2))
async def test_edges_are_consistent_at_any_time_and_counts_are_exact_at_the_end(
    container: StorageContainer, tables: Tables, seed: int
) -> None:
    """Sixteen tasks follow, unfollow, block and unblock, with conflicts and lost responses."""
    await make_users(container, *USERS)
    rows = social_rows_of(tables)
    follows = follows_of(container, rows)
    tables.faults.drop_responses("TransactWriteItems", 2)
    tables.faults.add("TransactWriteItems", *([lambda _: CONFLICT] + [lambda _: None] * 4) * 8)
    blocked: set[tuple[UserId, UserId]] = set()
    is_done = asyncio.Event()
    reads = 0

    async def read_repeatedly() -> None:
        nonlocal reads
        while not is_done.is_set():
            await read_edges(rows)
            await make_counters_worker(container).step()
            reads += 1

    async def work(number: int) -> None:
        rng = random.Random(seed * TASKS + number)
        for _ in range(STEPS):
            user, other = rng.sample(USERS, 2)
            match rng.choices(("follow", "unfollow", "block", "unblock"), (6, 3, 1, 1))[0]:
                # A task that gets many of the conflicts may fail.
                case "follow":
                    with contextlib.suppress(Forbidden, Unavailable):
                        await follows.follow(user, other)
                case "unfollow":
                    with contextlib.suppress(Unavailable):
                        await follows.unfollow(user, other)
                # One task per user changes blocks, so that the final blocks are known.
                case "block" if number % 4 == 0 and other != USERS[number // 4]:
                    await container.moderation.block(USERS[number // 4], other)
                    blocked.add((USERS[number // 4], other))
                case "unblock" if number % 4 == 0 and other != USERS[number // 4]:
                    await container.moderation.unblock(USERS[number // 4], other)
                    blocked.discard((USERS[number // 4], other))

    reader = asyncio.create_task(read_repeatedly())
    await asyncio.gather(*(work(number) for number in range(TASKS)))
    is_done.set()
    await reader
    await count_all(container)

    edges = await read_edges(rows)
    assert reads > 0
    assert not {pair for one, other in blocked for pair in ((one, other), (other, one))} & edges
    followers, following = edges_of(await rows.all())
    assert followers == following == edges
    await check_counts(rows, USERS)


async def test_follow_that_cannot_be_counted_is_not_stored(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Redis fails at the first or second queue entry, the change is undone."""
    alice, bob = USERS[:2]
    await make_users(container, alice, bob)
    rows, follows = social_rows_of(tables), container.get(SocialContainer).follows
    add, refused = CountQueue.add, set[str]()

    async def refuse(queue: CountQueue, count: Count, subject: str, change: Change) -> None:
        if count in refused:
            raise Unavailable("redis is down")
        await add(queue, count, subject, change)

    monkeypatch.setattr(CountQueue, "add", refuse)
    for count in ("followers", "following"):
        refused.add(count)
        with pytest.raises(Unavailable):
            await follows.follow(alice, bob)
        assert await read_edges(rows) == set()
        refused.clear()
    await follows.follow(alice, bob)
    refused.add("following")
    with pytest.raises(Unavailable):
        await follows.unfollow(alice, bob)

    assert await read_edges(rows) == {(alice, bob)}
    await count_all(container)
    await check_counts(rows, [alice, bob])


async def test_follow_beyond_the_limit_is_refused(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated follow is not refused."""
    alice, bob, carol = USERS[:3]
    await make_users(container, alice, bob, carol)
    follows = container.get(SocialContainer).follows
    monkeypatch.setattr("chatserver.features.social.service.follows.FOLLOWING_MAX", 1)
    await follows.follow(alice, bob)
    await count_all(container)

    with pytest.raises(Conflict, match="following: at most 1"):
        await follows.follow(alice, carol)

    await follows.follow(alice, bob)
    assert await read_edges(social_rows_of(tables)) == {(alice, bob)}


async def test_block_removes_follows_in_both_directions(
    container: StorageContainer, tables: Tables
) -> None:
    """Follows that are concurrent with the block are removed too."""
    alice, bob = USERS[:2]
    await make_users(container, alice, bob)
    rows = social_rows_of(tables)

    for _ in range(5):
        outcomes = await asyncio.gather(
            rows.graph.follow(alice, bob, 1),
            rows.graph.follow(bob, alice, 1),
            container.moderation.block(alice, bob),
            return_exceptions=True,
        )
        assert all(one in (True, None) or isinstance(one, Forbidden) for one in outcomes)
        assert await read_edges(rows) == set()
        await container.moderation.unblock(alice, bob)
    assert await rows.graph.follow(alice, bob, 1)


async def test_follower_pages_have_each_permanent_follower_once(tables: Tables) -> None:
    """Other users follow and unfollow during the pages."""
    rows = social_rows_of(tables)
    graph: FollowEdges = rows.graph
    steady = [str(user) for user in make_user_ids("s", 20)]
    await asyncio.gather(*(graph.follow(user, "star", 1) for user in steady))
    found: list[str] = []
    after, number = None, 0
    while True:
        page = await graph.list_followers_after("star", after, 3)
        found += page
        if len(page) < 3:
            break
        after = page[-1]
        await graph.follow(f"r{number}", "star", 1)
        await graph.follow(f"t{number}", "star", 1)
        await graph.unfollow(f"t{number - 1}", "star")
        number += 1

    assert [user for user in found if user.startswith("s")] == sorted(steady)
    assert len(found) == len(set(found))
    assert await scan_all(tables, "social")
