"""The audit of the social graph: it finds and repairs faults and ignores changes in progress."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import CountQueue
from chatserver.features.social.model import PostId
from chatserver.features.social.warm.audit import SocialAudit, SocialFinding
from tests.integration.features.social.support import (
    SocialRows,
    count_all,
    make_counters_worker,
    make_user_ids,
    ref_of,
    social_rows_of,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import make_users, running, variables_of


async def audit(
    rows: SocialRows, container: StorageContainer, *, is_repairing: bool = False
) -> list[SocialFinding]:
    """Audit the table once."""
    auditor = SocialAudit(
        client=rows.tables.client,
        has_uncounted=CountQueue(container.hot, 1000).has_uncounted,
        settle_s=0.5,
        is_repairing=is_repairing,
    )
    return [found async for found in auditor.iter_findings()]


async def put(rows: SocialRows, partition: str, sort: str, **numbers: int) -> None:
    """Write a row directly; `_` in a name stands for `#`."""
    item = {"PK": {"S": partition}, "SK": {"S": sort}}
    item |= {name.replace("_", "#"): {"N": str(number)} for name, number in numbers.items()}
    table = rows.tables.settings.table_prefix + "social"
    await rows.tables.client.call("put_item", {"TableName": table, "Item": item})


async def test_social_audit_finds_and_repairs_injected_faults(
    container: StorageContainer, tables: Tables
) -> None:
    """Wrong counts, and edges and favorites with one missing row, are found; then none is left."""
    rows = social_rows_of(tables)
    alice, bob = UserId("alice"), UserId("bob")
    await make_users(container, alice, bob)
    await container.get(SocialContainer).follows.follow(bob, alice)
    assert await audit(rows, container) == []  # queued changes are not faults
    await count_all(container)
    post = await rows.post("alice")
    await rows.likes.like("bob", ref_of(post), 1)
    await rows.likes.add_likes(post.id, 1, "1", "1")
    assert await audit(rows, container) == []
    await put(rows, "u#alice", "count", follower_=5, post_=1)
    await put(rows, f"p#{post.id}#likecount", "count", n=7)
    await put(rows, "u#carol#following", "u#dave", since=1)
    await rows.favorites.save("bob", ref_of(post), PostId("01JD0000000000000000000001"))
    await put(rows, "u#bob#favorite", "posts#01JD0000000000000000000002", n=1)

    found = {(each.what, each.key): each for each in await audit(rows, container)}
    repaired = await audit(rows, container, is_repairing=True)
    left = await audit(rows, container, is_repairing=True)
    await CountQueue(container.hot, 1000).add("likes", post.id, 1)
    await put(rows, f"p#{post.id}#likecount", "count", n=7)
    waiting = await audit(rows, container, is_repairing=True)

    assert found.keys() == {
        ("count", "u#alice/count"),
        ("likecount", f"p#{post.id}#likecount/count"),
        ("follow", "u#carol#following/u#dave"),
        ("favorite", "u#bob#favorite/posts#01JD0000000000000000000002"),
    }
    assert found["likecount", f"p#{post.id}#likecount/count"][2:] == ("7", "1", False)
    assert all(each.is_repaired for each in repaired) and left == []
    assert waiting == []  # a repair would count the queued like twice
    await put(rows, f"p#{post.id}#likecount", "count", n=1)
    stored = await rows.all()
    assert stored["u#alice", "count"] == {"follower#": 1, "following#": 0, "post#": 1}
    assert stored[f"p#{post.id}#likecount", "count"]["n"] == 1
    assert ("u#carol#following", "u#dave") not in stored


async def test_social_audit_during_follows_and_likes_has_no_findings(
    container: StorageContainer, tables: Tables
) -> None:
    """Changes in progress are not faults."""
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    follows = container.get(SocialContainer).follows
    users = make_user_ids("u", 5)
    await make_users(container, *users)
    posts = [await rows.post(users[0]) for _ in range(2)]

    async def live(number: int) -> None:
        rng = random.Random(number)
        while True:
            one, other = rng.sample(users, 2)
            line = ref_of(rng.choice(posts))
            if rng.random() < 0.5:
                await follows.follow(one, other)
            else:
                await follows.unfollow(one, other)
            await (social.like(one, line) if rng.random() < 0.6 else social.unlike(one, line))

    async def count() -> None:
        while True:
            await make_counters_worker(container).step()
            await asyncio.sleep(0.05)

    async with running(live(1)), running(live(2)), running(live(3)), running(count()):
        found = await audit(rows, container)
    assert found == []


async def test_social_audit_command_with_findings_exits_with_1(
    container: StorageContainer, tables: Tables
) -> None:
    """It prints one line for each finding."""
    rows = social_rows_of(tables)
    await put(rows, "u#alice", "count", follower_=5)
    env = {**os.environ, **variables_of(container)}

    def run() -> tuple[int, str]:
        command = [sys.executable, "-m", "chatserver.cli.main", "audit", "social"]
        done = subprocess.run(
            command, env=env, timeout=90, check=False, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    code, output = await asyncio.to_thread(run)

    assert code == 1
    assert output.startswith("wrong\tcount\tu#alice/count\tstored 5 followers")
