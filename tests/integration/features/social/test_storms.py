"""Concurrent follows of one user and likes of one post: no errors, and exact counts."""

from __future__ import annotations

import asyncio
import time

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.model import PostRef
from chatserver.features.social.worker.counters import run_counters
from tests.integration.features.social.support import (
    count_all,
    edges_of,
    make_user_ids,
    social_rows_of,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users, running
from tests.support.servers.limits import count_refusals
from tests.support.servers.processes import eventually_equal

STAR = UserId("star")
FANS = make_user_ids("fan", 128)


async def check_counts(tables: Tables) -> None:
    """Check that the stored counts of all users equal the numbers of edges."""
    stored = await social_rows_of(tables).all()
    followers, following = edges_of(stored)
    assert followers == following
    for user in (STAR, *FANS):
        counts = stored.get((f"u#{user}", "count"), {})
        assert counts.get("follower#", 0) == sum(other == user for _, other in followers), user
        assert counts.get("following#", 0) == sum(one == user for one, _ in followers), user


async def test_concurrent_follows_of_one_user_have_no_conflicts(
    container: StorageContainer, tables: Tables, dynamodb: str
) -> None:
    """The transactions of two follows share no item."""
    await make_users(container, STAR, *FANS)
    made = container.get(SocialContainer)
    for user in (STAR, *FANS):
        await made.profiles.make_info(user)
    before = count_refusals(dynamodb)

    async with running(run_counters(container, "w1")):
        await asyncio.gather(*(made.follows.follow(fan, STAR) for fan in FANS))
        refused = count_refusals(dynamodb) - before
        await asyncio.gather(*(made.follows.follow(STAR, fan) for fan in FANS))
        await asyncio.gather(*(made.follows.unfollow(fan, STAR) for fan in FANS[:28]))

        await eventually_equal(
            lambda: made.profiles.find_profile(STAR),
            (100, 128),
            of=lambda found: (found[1].followers, found[1].following),
        )
    await count_all(container)

    assert refused["TransactionCanceledException"] == 0
    await check_counts(tables)


async def test_concurrent_follows_of_a_user_without_profile_succeed(
    container: StorageContainer, tables: Tables, dynamodb: str
) -> None:
    """All of them try to create the profile, which causes conflicts but no errors."""
    await make_users(container, STAR, *FANS)
    made = container.get(SocialContainer)
    before = count_refusals(dynamodb)

    await asyncio.gather(*(made.follows.follow(fan, STAR) for fan in FANS))
    await count_all(container)

    assert (
        count_refusals(dynamodb)["TransactionCanceledException"]
        > (before["TransactionCanceledException"])
    )
    await check_counts(tables)


async def test_concurrent_likes_of_one_post_are_counted_once(
    container: StorageContainer, tables: Tables
) -> None:
    """After repeated likes and unlikes, the count equals the list."""
    await make_users(container, STAR, *FANS)
    made = container.get(SocialContainer)
    await social_rows_of(tables).make_users(STAR)
    post = await social_rows_of(tables).post(STAR, created_ms=int(time.time() * 1000))
    ref = PostRef(post.id, STAR)

    async with running(run_counters(container, "w1")):
        await asyncio.gather(*(made.social.like(fan, ref) for fan in (*FANS, *FANS)))
        await asyncio.gather(*(made.social.unlike(fan, ref) for fan in FANS[:28]))

        await eventually_equal(lambda: made.likes.get_counts([post.id]), {post.id: 100})
    await count_all(container)

    stored = await social_rows_of(tables).all()
    listed = [sort for partition, sort in stored if partition == f"p#{post.id}#likelist"]
    assert sorted(listed) == [f"u#{fan}" for fan in FANS[28:]]
    assert stored[f"p#{post.id}#likecount", "count"]["n"] == 100
