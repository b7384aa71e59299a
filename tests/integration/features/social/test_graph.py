"""Following: edges on both sides and counts are one, whoever races, blocks or collides."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import Forbidden, Unavailable
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.warm.dynamo.client import Item
from tests.integration.features.social.support import (
    SocialRows,
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


async def look(rows: SocialRows) -> tuple[set[tuple[str, str]], dict[str, tuple[int, int]]]:
    """Return all edges and counts of one moment; edges are those of both sides."""
    table = rows.tables.settings.table_prefix + "social"
    pairs = [(user, other) for user in USERS for other in USERS if user != other]
    keys = [(f"u#{user}", "count") for user in USERS]
    keys += [(f"u#{user}#following", f"u#{other}") for user, other in pairs]
    keys += [(f"u#{other}#follower", f"u#{user}") for user, other in pairs]
    gets = [
        {"Get": {"TableName": table, "Key": {"PK": {"S": key[0]}, "SK": {"S": key[1]}}}}
        for key in keys
    ]
    answer = await rows.tables.client.call("transact_get_items", {"TransactItems": gets})
    found: list[Item] = [response.get("Item", {}) for response in answer["Responses"]]
    counts = dict(zip(USERS, map(_counts, found[: len(USERS)]), strict=True))
    sides = found[len(USERS) :]
    following = {pair for pair, item in zip(pairs, sides[: len(pairs)], strict=True) if item}
    followers = {pair for pair, item in zip(pairs, sides[len(pairs) :], strict=True) if item}
    assert following == followers
    return {(str(user), str(other)) for user, other in following}, counts  # type: ignore[return-value]  # ids are text


def _counts(item: Item) -> tuple[int, int]:
    return tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("follower#", "following#"))  # type: ignore[return-value]  # two


def check(edges: set[tuple[str, str]], counts: dict[Any, tuple[int, int]]) -> None:
    """See that counts are the numbers of edges."""
    for user, (followers, following) in counts.items():
        assert followers == sum(other == user for _, other in edges), user
        assert following == sum(one == user for one, _ in edges), user


@pytest.mark.parametrize("seed", range(2))
async def test_edges_and_counts_are_one_at_every_moment_whoever_races(
    container: StorageContainer, tables: Tables, seed: int
) -> None:
    """Sixteen tasks follow, unfollow, block and unblock; calls collide and answers are lost."""
    await make_users(container, *USERS)
    rows = social_rows_of(tables)
    tables.faults.lose_answers("TransactWriteItems", 5)
    tables.faults.add("TransactWriteItems", *([lambda _: CONFLICT] + [lambda _: None] * 4) * 8)
    blocked: set[tuple[UserId, UserId]] = set()
    is_over = asyncio.Event()
    looks = 0

    async def watch() -> None:
        nonlocal looks
        while not is_over.is_set():
            check(*await look(rows))
            looks += 1

    async def work(number: int) -> None:
        dice = random.Random(seed * TASKS + number)
        for _ in range(STEPS):
            user, other = dice.sample(USERS, 2)
            match dice.choices(("follow", "unfollow", "block", "unblock"), (6, 3, 1, 1))[0]:
                # Whoever meets all the collisions himself may follow, or not.
                case "follow":
                    with contextlib.suppress(Forbidden, Unavailable):
                        await rows.graph.follow(user, other, 1)
                case "unfollow":
                    with contextlib.suppress(Unavailable):
                        await rows.graph.unfollow(user, other)
                # One task of a user's blocks for him, so that it is known whom.
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

    edges, counts = await look(rows)
    check(edges, counts)
    assert looks > 3
    assert not {pair for one, other in blocked for pair in ((one, other), (other, one))} & edges
    followers, following = edges_of(await rows.all())
    assert followers == following == edges


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
        assert (await look(rows))[0] == set()
        await container.moderation.unblock(alice, bob)
    assert await rows.graph.follow(alice, bob, 1)


async def test_followers_are_paged_whole_while_others_come_and_go(tables: Tables) -> None:
    """Who follows from the beginning to the end is on one page, once."""
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
