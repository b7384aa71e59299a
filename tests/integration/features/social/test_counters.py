"""Like counts: batches, concurrent workers, and killed workers."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import Overloaded, Unavailable
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import CountQueue
from chatserver.features.social.keys import SocialKeys
from chatserver.features.social.model import PostId
from chatserver.features.social.worker.counters import run_counters
from chatserver.telemetry import metrics
from tests.integration.features.social.support import (
    SocialRows,
    make_counters_worker,
    make_user_ids,
    ref_of,
    social_rows_of,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    make_users,
    open_container,
    running,
    variables_of,
)
from tests.support.servers.processes import eventually_equal

KEYS = SocialKeys(1)
FAILPOINTS = ("counters.before_write", "counters.after_write", "counters.before_trim")


class Killed(Exception):
    """Stands for a kill of a worker."""


async def count_likes(rows: SocialRows, post: PostId) -> int:
    return len((await rows.likes.list_likes(post, None, 100)).items)


async def test_likes_are_counted_in_batches(container: StorageContainer, tables: Tables) -> None:
    """Forty likes of two posts are two writes. Repeated and removed likes do not count."""
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = make_user_ids("fan", 20)
    await make_users(container, ALICE, *fans)
    posts = [await rows.post("alice"), await rows.post("alice")]
    await asyncio.gather(*(social.like(fan, ref_of(post)) for fan in fans for post in posts))
    await social.like(fans[0], ref_of(posts[0]))
    await social.unlike(fans[1], ref_of(posts[0]))
    await social.unlike(fans[1], ref_of(posts[0]))
    before = metrics.COUNTERS_WRITES._value.get()

    assert not await make_counters_worker(container).step()

    assert metrics.COUNTERS_WRITES._value.get() - before == 2
    assert await rows.likes.get_counts([post.id for post in posts]) == {
        posts[0].id: 19,
        posts[1].id: 20,
    }
    assert await container.hot.call("XLEN", KEYS.counts(0)) == 0


@pytest.mark.parametrize("seed", range(2))
async def test_counts_equal_likes_after_random_kills(
    container: StorageContainer, tables: Tables, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers count and are killed at random while sixteen tasks like and unlike."""
    rng = random.Random(seed)
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = make_user_ids("fan", 6)
    await make_users(container, ALICE, *fans)
    posts = [await rows.post("alice") for _ in range(3)]
    kills: list[str] = []

    def kill_at_random(name: str) -> None:
        if rng.random() < 0.3:
            kills.append(name)
            raise Killed

    monkeypatch.setattr("chatserver.features.social.worker.counters.failpoint", kill_at_random)

    async def like(number: int) -> None:
        task_rng, done = random.Random(seed * 16 + number), 0
        # Run until there were some kills; their number depends on the speed of the machine.
        while done < 12 or len(kills) <= 3:
            done += 1
            fan, ref = task_rng.choice(fans), ref_of(task_rng.choice(posts))
            await (social.like(fan, ref) if task_rng.random() < 0.6 else social.unlike(fan, ref))

    async def step(owner: str) -> None:
        try:
            await make_counters_worker(container, owner).step()
        except* Killed:
            pass

    likes = asyncio.gather(*(like(number) for number in range(16)))
    while not likes.done():
        await asyncio.gather(step("w1"), step("w2"))
    await likes
    while await container.hot.call("XLEN", KEYS.counts(0)):
        await asyncio.gather(step("w1"), step("w2"))

    edges = {post.id: await count_likes(rows, post.id) for post in posts}
    assert sum(edges.values()) > 0
    assert await rows.likes.get_counts([post.id for post in posts]) == edges


@pytest.mark.timeout(300)
async def test_likes_are_counted_once_after_kills_of_the_worker_process(
    container: StorageContainer, tables: Tables
) -> None:
    """Real processes are killed before the write, after it, and before the queue is trimmed."""
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = make_user_ids("fan", len(FAILPOINTS) * 2)
    await make_users(container, ALICE, *fans)
    post = await rows.post("alice")

    def run(failpoint: str) -> int:
        env = {**os.environ, **variables_of(container), "CHAT_FAILPOINT": f"{failpoint}:kill"}
        more = {
            "chatserver.features.social.worker.counters.LEASE_S": "1",
            "chatserver.features.social.worker.counters.FLUSH_S": "0.2",
        }
        command = [sys.executable, "-m", "tests.support.cli", "worker", "counters"]
        return subprocess.run(command, env={**env, **more}, timeout=120, check=False).returncode

    for number, failpoint in enumerate(FAILPOINTS):
        for fan in fans[2 * number : 2 * number + 2]:
            await social.like(fan, ref_of(post))
        assert await asyncio.to_thread(run, failpoint) == -9

    async with running(run_counters(container, "w2")):
        await eventually_equal(lambda: rows.likes.get_counts([post.id]), {post.id: len(fans)})
    assert await count_likes(rows, post.id) == len(fans)


async def test_like_that_cannot_be_counted_is_not_stored(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue refuses the like before the write. If Redis is down, the like is undone."""
    rows = social_rows_of(tables)
    await make_users(container, ALICE, UserId("bob"))
    post = await rows.post("alice")
    social = container.get(SocialContainer).social
    queue = CountQueue(container.hot, 1)
    await queue.add("likes", post.id, 1)
    with pytest.raises(Overloaded):
        await queue.check_capacity(post.id)
    await container.hot.call("DEL", KEYS.counts(0))

    async def fail(*_: object) -> None:
        raise Unavailable("redis is down")

    monkeypatch.setattr(CountQueue, "add", fail)
    with pytest.raises(Unavailable):
        await social.like(UserId("bob"), ref_of(post))
    assert await rows.likes.find_liked("bob", [post.id]) == set()


@pytest.mark.constants({"chatserver.features.social.worker.counters.BATCH_MAX": 2})
async def test_likes_of_a_deleted_post_are_skipped(redis_url: str, tables: Tables) -> None:
    """Queued changes do not create the count again."""
    async with open_container(redis_url, tables.settings) as container:
        rows = social_rows_of(tables)
        kept, gone = await rows.post("alice"), await rows.post("alice")
        queue = CountQueue(container.hot, 100)
        for post in (gone, kept, gone, kept, kept):
            await queue.add("likes", post.id, 1)
        await rows.posts.delete_post("alice", gone.id, 1)
        worker = make_counters_worker(container)

        assert [await worker.step() for _ in range(3)] == [True, True, False]

        assert await rows.likes.get_counts([kept.id, gone.id]) == {kept.id: 3, gone.id: 0}
        assert (f"p#{gone.id}#likecount", "count") not in await rows.all()
