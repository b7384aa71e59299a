"""Follows: edges in both directions and exact counts, under races, blocks and conflicts."""

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
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.warm.dynamo.client import Item
from tests.integration.features.social.support import (
    SocialRows,
    count_all,
    counter_of,
    edges_of,
    scan_all,
    social_rows_of,
    users_named,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

USERS = users_named("u", 4)
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
    """Follow use cases whose DynamoDB calls meet the faults of the test's tables."""
    made = container.get(SocialContainer)
    return Follows(
        graph=rows.graph,
        profiles=rows.profiles,
        queue=made.queue,
        backfill=made.follows._backfill,
        clock=SystemClock(),
    )


async def look(rows: SocialRows) -> set[tuple[str, str]]:
    """Return all edges of one moment, which exist in both directions."""
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
async def test_edges_are_one_at_every_moment_and_counts_are_exact_once_quiet(
    container: StorageContainer, tables: Tables, seed: int
) -> None:
    """Sixteen tasks follow, unfollow, block and unblock; calls collide and answers are lost."""
    await make_users(container, *USERS)
    rows = social_rows_of(tables)
    follows = follows_of(container, rows)
    tables.faults.lose_answers("TransactWriteItems", 2)
    tables.faults.add("TransactWriteItems", *([lambda _: CONFLICT] + [lambda _: None] * 4) * 8)
    blocked: set[tuple[UserId, UserId]] = set()
    is_over = asyncio.Event()
    looks = 0

    async def watch() -> None:
        nonlocal looks
        while not is_over.is_set():
            await look(rows)
            await counter_of(container).step()
            looks += 1

    async def work(number: int) -> None:
        dice = random.Random(seed * TASKS + number)
        for _ in range(STEPS):
            user, other = dice.sample(USERS, 2)
            match dice.choices(("follow", "unfollow", "block", "unblock"), (6, 3, 1, 1))[0]:
                # A task that meets all the conflicts may fail.
                case "follow":
                    with contextlib.suppress(Forbidden, Unavailable):
                        await follows.follow(user, other)
                case "unfollow":
                    with contextlib.suppress(Unavailable):
                        await follows.unfollow(user, other)
                # One task blocks for each user, so that the blocks are known.
                case "block" if number % 4 == 0 and other != USERS[number // 4]:
                    await container.moderation.block(USERS[number // 4], other)
                    blocked.add((USERS[number // 4], other))
                case "unblock" if number % 4 == 0 and other != USERS[number // 4]:
                    await container.moderation.unblock(USERS[number // 4], other)
                    blocked.discard((USERS[number // 4], other))

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(work(number) for number in range(TASKS)))
    is_over.set()
    await watcher
    await count_all(container)

    edges = await look(rows)
    assert looks > 0
    assert not {pair for one, other in blocked for pair in ((one, other), (other, one))} & edges
    followers, following = edges_of(await rows.all())
    assert followers == following == edges
    await check_counts(rows, USERS)


async def test_follow_that_cannot_be_counted_is_not_kept(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis fails before the first or second queue entry; the other one is undone."""
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
        assert await look(rows) == set()
        refused.clear()
    await follows.follow(alice, bob)
    refused.add("following")
    with pytest.raises(Unavailable):
        await follows.unfollow(alice, bob)

    assert await look(rows) == {(alice, bob)}
    await count_all(container)
    await check_counts(rows, [alice, bob])


async def test_user_follows_a_bounded_number_of_others(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follow beyond the bound is refused; a repeated follow is not."""
    alice, bob, carol = USERS[:3]
    await make_users(container, alice, bob, carol)
    follows = container.get(SocialContainer).follows
    monkeypatch.setattr("chatserver.features.social.service.follows.FOLLOWING_MAX", 1)
    await follows.follow(alice, bob)
    await count_all(container)

    with pytest.raises(Conflict, match="following: at most 1"):
        await follows.follow(alice, carol)

    await follows.follow(alice, bob)
    assert await look(social_rows_of(tables)) == {(alice, bob)}


async def test_block_ends_that_either_follows_and_keeps_it_so(
    container: StorageContainer, tables: Tables
) -> None:
    """Follows that are under way when somebody blocks leave nothing behind."""
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
        assert await look(rows) == set()
        await container.moderation.unblock(alice, bob)
    assert await rows.graph.follow(alice, bob, 1)


async def test_followers_are_paged_whole_while_others_come_and_go(tables: Tables) -> None:
    """A user who follows all the time is on exactly one page."""
    rows = social_rows_of(tables)
    graph: SocialGraph = rows.graph
    steady = [str(user) for user in users_named("s", 20)]
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
