"""Counting likes: many at once, each once, whatever is killed when."""

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
from chatserver.features.social.worker.counters import run_counters
from chatserver.telemetry import metrics
from tests.integration.features.social.support import (
    counter_of,
    line_of,
    social_rows_of,
    users_named,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    make_users,
    open_container,
    running,
    variables_of,
)
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

PLACES = ("counters.before_write", "counters.after_write", "counters.before_trim")


class Killed(Exception):
    """A worker died here."""


async def test_likes_are_counted_many_at_once_and_the_queue_is_emptied(
    container: StorageContainer, tables: Tables
) -> None:
    """Two posts, forty likes, two writes; a repeat counts once, what is taken back does not."""
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = users_named("fan", 20)
    await make_users(container, ALICE, *fans)
    posts = [await rows.post("alice"), await rows.post("alice")]
    await asyncio.gather(*(social.like(fan, line_of(post)) for fan in fans for post in posts))
    await social.like(fans[0], line_of(posts[0]))
    await social.unlike(fans[1], line_of(posts[0]))
    await social.unlike(fans[1], line_of(posts[0]))
    before = metrics.COUNTERS_WRITES._value.get()

    assert not await counter_of(container).step()

    assert metrics.COUNTERS_WRITES._value.get() - before == 2
    assert await rows.likes.get_counts([post.id for post in posts]) == {
        posts[0].id: 19,
        posts[1].id: 20,
    }
    assert await container.hot.call("XLEN", container.hot.keys.counts(0)) == 0


@pytest.mark.parametrize("seed", range(2))
async def test_counts_are_edges_once_the_queue_is_drained_whoever_was_killed(
    container: StorageContainer, tables: Tables, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers die at random while sixteen tasks like and unlike; two of them are at it at once."""
    dice = random.Random(seed)
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = users_named("fan", 6)
    await make_users(container, ALICE, *fans)
    posts = [await rows.post("alice") for _ in range(3)]
    deaths: list[str] = []

    def die(name: str) -> None:
        if dice.random() < 0.3:
            deaths.append(name)
            raise Killed

    monkeypatch.setattr("chatserver.features.social.worker.counters.failpoint", die)

    async def like(number: int) -> None:
        mine, done = random.Random(seed * 16 + number), 0
        # How often somebody counts meanwhile, and may die of it, is a matter of speed.
        while done < 12 or len(deaths) <= 3:
            done += 1
            fan, line = mine.choice(fans), line_of(mine.choice(posts))
            await (social.like(fan, line) if mine.random() < 0.6 else social.unlike(fan, line))

    async def step(owner: str) -> None:
        try:
            await counter_of(container, owner).step()
        except* Killed:
            pass

    likes = asyncio.gather(*(like(number) for number in range(16)))
    while not likes.done():
        await asyncio.gather(step("w1"), step("w2"))
    await likes
    while await container.hot.call("XLEN", container.hot.keys.counts(0)):
        await asyncio.gather(step("w1"), step("w2"))

    edges = {post.id: await rows.likes.count_likes(post.id) for post in posts}
    assert sum(edges.values()) > 0
    assert {post.id: (await rows.likes.find_tally(post.id)).n for post in posts} == edges  # type: ignore[union-attr]  # it is there


@pytest.mark.timeout(300)
async def test_worker_process_that_is_killed_is_followed_by_one_that_counts_once(
    container: StorageContainer, tables: Tables
) -> None:
    """Real processes, killed before the write, after it, and before the queue is trimmed."""
    rows, social = social_rows_of(tables), container.get(SocialContainer).social
    fans = users_named("fan", len(PLACES) * 2)
    await make_users(container, ALICE, *fans)
    post = await rows.post("alice")

    def run(place: str) -> int:
        env = {**os.environ, **variables_of(container), "CHAT_FAILPOINT": f"{place}:kill"}
        more = {
            "chatserver.features.social.worker.counters.LEASE_S": "1",
            "chatserver.features.social.worker.counters.FLUSH_S": "0.2",
        }
        command = [sys.executable, "-m", "tests.support.cli", "worker", "counters"]
        return subprocess.run(command, env={**env, **more}, timeout=120, check=False).returncode

    for number, place in enumerate(PLACES):
        for fan in fans[2 * number : 2 * number + 2]:
            await social.like(fan, line_of(post))
        assert await asyncio.to_thread(run, place) == -9

    async def is_counted() -> bool:
        return (await rows.likes.get_counts([post.id]))[post.id] == len(fans)

    async with running(run_counters(container, "w2")):
        await eventually(is_counted, what="all likes are counted")
    assert await rows.likes.count_likes(post.id) == len(fans)


async def test_like_that_cannot_be_counted_is_not_kept(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue refuses before the write; an unavailable Redis, after it."""
    rows = social_rows_of(tables)
    await make_users(container, ALICE, UserId("bob"))
    post = await rows.post("alice")
    social = container.get(SocialContainer).social
    queue = CountQueue(container.hot, 1)
    await queue.add("likes", post.id, 1)
    with pytest.raises(Overloaded):
        await queue.check_room(post.id)
    await container.hot.call("DEL", container.hot.keys.counts(0))

    async def away(*_: object) -> None:
        raise Unavailable("redis is away")

    monkeypatch.setattr(CountQueue, "add", away)
    with pytest.raises(Unavailable):
        await social.like(UserId("bob"), line_of(post))
    assert await rows.likes.find_liked("bob", [post.id]) == set()


@pytest.mark.constants({"chatserver.features.social.worker.counters.BATCH_MAX": 2})
async def test_likes_of_a_post_that_is_gone_are_passed_over(redis_url: str, tables: Tables) -> None:
    """Queue entries of a deleted post do not recreate its count."""
    async with open_container(redis_url, tables.settings) as container:
        rows = social_rows_of(tables)
        kept, gone = await rows.post("alice"), await rows.post("alice")
        queue = CountQueue(container.hot, 100)
        for post in (gone, kept, gone, kept, kept):
            await queue.add("likes", post.id, 1)
        await rows.posts.delete_post("alice", gone.id, 1)
        worker = counter_of(container)

        assert [await worker.step() for _ in range(3)] == [True, True, False]

        assert await rows.likes.get_counts([kept.id, gone.id]) == {kept.id: 3, gone.id: 0}
        assert await rows.likes.find_tally(gone.id) is None
