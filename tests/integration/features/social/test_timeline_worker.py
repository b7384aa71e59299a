"""Timelines: fan-out of posts despite killed workers, merged posts, backfill and reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.model import PostRef
from chatserver.features.social.service.timelines import Timelines
from chatserver.features.social.settings import Timeline
from chatserver.features.social.warm.fanouts import Merged
from chatserver.features.social.worker.timeline_fanout import run_timeline
from chatserver.hot.bus.gateway_stream import UserSignal
from tests.integration.features.social.support import (
    IDS,
    SocialRows,
    count_all,
    make_counters_worker,
    make_user_ids,
    ref_of,
    run_fanout_jobs,
    social_rows_of,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    make_users,
    open_container,
    running,
    variables_of,
)
from tests.support.servers.processes import eventually, eventually_equal

FAILPOINTS = ("timeline.before_page", "timeline.after_page", "timeline.after_record")


class Killed(Exception):
    """Stands for a kill of the worker."""


NO_CACHE = {"chatserver.features.social.service.timelines.MERGED_CACHE_S": 0}


async def list_timeline_rows(rows: SocialRows) -> list[tuple[str, str]]:
    """Return (user, sort key) of all timeline rows."""
    found = await rows.all()
    return [
        (partition.split("#")[1], sort)
        for partition, sort in found
        if partition.endswith("#timeline")
    ]


@pytest.mark.constants({"chatserver.features.social.worker.timeline_fanout.PAGE": 4})
async def test_post_reaches_each_follower_once_despite_random_kills(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills occur before and after the rows of a page, and after the position is recorded."""
    rng, kills = random.Random(7), []

    def kill_at_random(name: str) -> None:
        if rng.random() < 0.4:
            kills.append(name)
            raise Killed

    monkeypatch.setattr(
        "chatserver.features.social.worker.timeline_fanout.failpoint", kill_at_random
    )
    async with open_container(redis_url, tables.settings) as container:
        rows = social_rows_of(tables)
        fans = make_user_ids("fan", 30)
        await asyncio.gather(*(rows.graph.follow(fan, "alice", 1) for fan in fans))
        post = await rows.post("alice")
        is_done = False
        while not is_done:
            with contextlib.suppress(Killed):
                await run_fanout_jobs(container)
                is_done = True

    assert set(kills) == set(FAILPOINTS)
    line = f"p#{post.id}#u#alice"
    assert sorted(await list_timeline_rows(rows)) == [
        (user, line) for user in sorted(["alice", *fans])
    ]
    jobs = [key for key in await rows.all("directory") if key[0].startswith("fanout#")]
    assert jobs == []


@pytest.mark.timeout(300)
async def test_fanout_continues_after_kills_of_the_worker_process(
    container: StorageContainer, tables: Tables
) -> None:
    """The next worker continues from the recorded position."""
    rows = social_rows_of(tables)
    fans = make_user_ids("fan", 12)
    await asyncio.gather(*(rows.graph.follow(fan, "alice", 1) for fan in fans))
    post = await rows.post("alice")

    def run(failpoint: str) -> int:
        env = {**os.environ, **variables_of(container), "CHAT_FAILPOINT": f"{failpoint}:kill"}
        more = {
            "chatserver.features.social.worker.timeline_fanout.LEASE_S": "1",
            "chatserver.features.social.worker.timeline_fanout.PAGE": "4",
        }
        command = [sys.executable, "-m", "tests.support.cli", "worker", "timeline"]
        return subprocess.run(command, env={**env, **more}, timeout=120, check=False).returncode

    assert await asyncio.to_thread(run, FAILPOINTS[1]) == -9
    assert len(await list_timeline_rows(rows)) == 1 + 4
    assert await asyncio.to_thread(run, FAILPOINTS[2]) == -9
    (job,) = [row for key, row in (await rows.all("directory")).items() if key[0][:6] == "fanout"]
    assert job["place"] == str(fans[3])

    async with running(run_timeline(container, "w3")):
        await eventually_equal(lambda: list_timeline_rows(rows), 1 + len(fans), of=len)
    assert {line for _, line in await list_timeline_rows(rows)} == {f"p#{post.id}#u#alice"}


async def test_timeline_has_current_posts_of_followed_users(
    container: StorageContainer, tables: Tables
) -> None:
    """Posts are newest first, with edits, without deleted posts and posts of unfollowed users."""
    rows, social = social_rows_of(tables), container.get(SocialContainer)
    await make_users(container, ALICE, BOB, CAROL)
    for author in (ALICE, CAROL):
        await social.follows.follow(BOB, author)
    made = [
        (await social.social.create_post(author, f"post {n}", None)).post
        for n, author in enumerate((ALICE, CAROL, ALICE, ALICE))
    ]
    await run_fanout_jobs(container)
    await social.social.edit_post(ALICE, made[0].id, {"content": "edited"})
    await social.social.like(BOB, ref_of(made[0]))
    await social.social.delete_post(ALICE, made[2].id)

    page, after = await social.timelines.read(BOB, None, 2)
    rest, end = await social.timelines.read(BOB, after, 2)

    assert [seen.post.content for seen in page + rest] == ["post 3", "post 1", "edited"]
    assert (rest[0].name, rest[0].is_liked, rest[0].post.edited_ms is None) == (None, True, False)
    assert end is None
    assert ("bob", f"p#{made[2].id}#u#alice") not in await list_timeline_rows(rows)
    await social.follows.unfollow(BOB, ALICE)
    assert len([user for user, _ in await list_timeline_rows(rows) if user == BOB]) == 3
    page, after = await social.timelines.read(BOB, None, 5)
    assert [seen.post.content for seen in page] == ["post 1"] and after is None
    own, _ = await social.timelines.read(ALICE, None, 5)
    assert [seen.post.content for seen in own] == ["post 3", "edited"]


@pytest.mark.constants(NO_CACHE)
async def test_posts_of_authors_with_many_followers_are_merged_on_read(
    redis_url: str, tables: Tables
) -> None:
    """There are no timeline rows.

    Each post is listed once, also if the author crossed the limit.
    """
    limit = {"fanout_followers_max": 2}
    async with open_container(redis_url, tables.settings, timeline=limit) as container:
        rows, social = social_rows_of(tables), container.get(SocialContainer)
        fans = [BOB, *make_user_ids("fan", 2)]
        await make_users(container, ALICE, CAROL, *fans)
        await social.follows.follow(BOB, CAROL)
        await social.follows.follow(BOB, ALICE)
        contents = []
        for number in range(9):
            if number == 2:
                for fan in fans:
                    await social.follows.follow(fan, ALICE)
                await make_counters_worker(container).step()
            author = CAROL if number % 3 == 1 else ALICE
            contents.append(f"post {number}")
            await social.social.create_post(author, contents[-1], None)
            await run_fanout_jobs(container)

        read: list[str] = []
        after: PostRef | None = None
        while True:
            page, after = await social.timelines.read(BOB, after, 2)
            read += [seen.post.content for seen in page]
            if after is None:
                break

        assert read == contents[::-1]
        fanned_out = [
            line.split("#")[3] for user, line in await list_timeline_rows(rows) if user == BOB
        ]
        assert sorted(fanned_out) == ["alice", "carol", "carol", "carol"]
        assert (await rows.all("directory"))["merged", "merged#alice"].keys() == {"first", "last"}
        await social.follows.unfollow(BOB, ALICE)
        page, _ = await social.timelines.read(BOB, None, 9)
        assert [seen.post.author for seen in page] == ["carol"] * 3


async def test_online_followers_get_a_signal(
    container: StorageContainer, tables: Tables, gateway: Gateway
) -> None:
    """The signal has the author and id of the post; other users get none."""
    social = container.get(SocialContainer)
    await make_users(container, ALICE, BOB, CAROL)
    await gateway.announce(BOB, CAROL)
    await social.follows.follow(BOB, ALICE)

    async with running(run_timeline(container, "w1")):
        seen = await social.social.create_post(ALICE, "hello", None)
        await eventually(lambda: gateway.received(UserSignal), what="a signal is received")

    (mail,) = gateway.received(UserSignal)
    assert mail.user == BOB
    assert mail.frame == (
        b'{"type":"signal","kind":"post","from":"alice","post":"%s"}' % seen.post.id.encode()
    )


async def test_likes_of_a_deleted_post_are_deleted_with_their_links(
    container: StorageContainer, tables: Tables
) -> None:
    """The transaction of the deletion creates a job that deletes them."""
    rows = social_rows_of(tables)
    post = await rows.post("alice")
    for fan in make_user_ids("fan", 5):
        await rows.likes.like(fan, ref_of(post), 1)
    await rows.posts.delete_post("alice", post.id, 1)

    await run_fanout_jobs(container)

    assert await rows.all() == {("u#alice", "count"): {"post#": 0}}
    assert [key for key in await rows.all("directory") if "#" in key[0]] == []


async def test_timeline_with_many_deleted_posts_is_read(
    container: StorageContainer, tables: Tables
) -> None:
    """Rows of deleted posts are skipped and deleted."""
    rows, social = social_rows_of(tables), container.get(SocialContainer)
    timelines: Timelines = social.timelines
    await make_users(container, ALICE, BOB)
    await social.follows.follow(BOB, ALICE)
    # Use the current time, because timelines have only posts of the last days.
    kept = await rows.post("alice", created_ms=int(SystemClock().time() * 1000))
    await run_fanout_jobs(container)
    ttl = int(SystemClock().time()) + 1000
    for _ in range(60):
        gone = await rows.post("alice")
        await rows.timelines.put_entries([("bob", ref_of(gone), ttl)])
        await rows.posts.delete_post("alice", gone.id, 1)

    found, after = await timelines.read(UserId("bob"), None, 1)

    assert [seen.post.id for seen in found] == [kept.id] and after is None
    assert len([user for user, _ in await list_timeline_rows(rows) if user == BOB]) == 1


@pytest.mark.constants({"chatserver.features.social.service.timelines.MERGED_MAX": 1, **NO_CACHE})
async def test_timeline_merges_a_limited_number_of_authors(redis_url: str, tables: Tables) -> None:
    """The first authors by id are merged; posts of others are only on the authors' pages."""
    limits = {"fanout_followers_max": 0}
    async with open_container(redis_url, tables.settings, timeline=limits) as container:
        social = container.get(SocialContainer)
        await make_users(container, ALICE, BOB, CAROL)
        for author in (ALICE, CAROL):
            await social.follows.follow(BOB, author)
            await social.social.create_post(author, "hello", None)
        await make_counters_worker(container).step()
        await run_fanout_jobs(container)

        page, _ = await social.timelines.read(BOB, None, 5)

        assert [seen.post.author for seen in page] == ["alice"]


@pytest.mark.constants({"chatserver.features.social.service.timelines.BACKFILL_POSTS_MAX": 3})
async def test_new_follow_adds_the_newest_posts_to_the_timeline(
    container: StorageContainer, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker is needed, and a retry of the follow repairs a failed backfill."""
    rows, social = social_rows_of(tables), container.get(SocialContainer)
    await make_users(container, ALICE, BOB)
    for number in range(5):
        await social.social.create_post(ALICE, f"post {number}", None)
    await run_fanout_jobs(container)

    async def refuse(*_: object) -> None:
        raise Unavailable("DynamoDB is down")

    with monkeypatch.context() as patch:
        patch.setattr(social.timeline_rows, "put_entries", refuse)
        with pytest.raises(Unavailable):
            await social.follows.follow(BOB, ALICE)
    assert (await social.timelines.read(BOB, None, 9))[0] == []
    await social.follows.follow(BOB, ALICE)
    page, _ = await social.timelines.read(BOB, None, 9)
    await social.social.create_post(ALICE, "post 5", None)
    await run_fanout_jobs(container)
    later, _ = await social.timelines.read(BOB, None, 9)

    assert [seen.post.content for seen in page] == ["post 4", "post 3", "post 2"]
    assert [seen.post.content for seen in later] == ["post 5", "post 4", "post 3", "post 2"]
    ttls = {
        key[1].split("#")[1]: row["ttl"]
        for key, row in (await rows.all()).items()
        if key[0] == "u#bob#timeline"
    }
    newest = page[0].post
    assert (
        ttls[newest.id]
        == newest.created_ms // 1000 + container.settings.get(Timeline).days * 86_400
    )


@pytest.mark.constants(
    {"chatserver.features.social.service.timelines.BACKFILL_POSTS_MAX": 1, **NO_CACHE}
)
async def test_timeline_gets_no_older_posts_when_an_author_crosses_the_fan_out_limit(
    redis_url: str, tables: Tables
) -> None:
    """Followers keep the posts that they saw, whether they followed before or after the crossing.

    Posts 0 and 1 are fanned out. The author is above the limit at post 2, below it at post 3 and
    above it again at post 4.
    """
    async with open_container(
        redis_url, tables.settings, timeline={"fanout_followers_max": 2}
    ) as container:
        social = container.get(SocialContainer)
        fans = make_user_ids("fan", 2)
        await make_users(container, ALICE, BOB, CAROL, *fans)

        async def post(number: int) -> None:
            await count_all(container)
            await social.social.create_post(ALICE, f"post {number}", None)
            await run_fanout_jobs(container)

        async def read(user: UserId) -> list[str]:
            page, _ = await social.timelines.read(user, None, 9)
            return [seen.post.content for seen in page]

        await post(0)
        await post(1)
        await social.follows.follow(BOB, ALICE)
        assert await read(BOB) == ["post 1"]
        for fan in fans:
            await social.follows.follow(fan, ALICE)
        await post(2)
        assert await read(BOB) == ["post 2", "post 1"]
        await social.follows.unfollow(fans[0], ALICE)
        await post(3)
        await social.follows.follow(CAROL, ALICE)
        before = await read(CAROL)
        await post(4)

        assert before == ["post 3", "post 2"]
        assert await read(CAROL) == ["post 4", *before]
        assert await read(BOB) == ["post 4", "post 3", "post 2", "post 1"]
        assert await read(fans[0]) == []
        await social.follows.follow(fans[0], ALICE)
        assert await read(fans[0]) == ["post 4", "post 3", "post 2", "post 1"]


@pytest.mark.constants(NO_CACHE)
async def test_merged_range_restarts_when_it_is_older_than_timelines(
    container: StorageContainer, tables: Tables
) -> None:
    """The first and the newest merged post are recorded, whatever the order of the jobs."""
    rows = social_rows_of(tables)
    posts = [PostRef(IDS.next(), "alice") for _ in range(6)]

    for number in (2, 3, 1, 2):
        await rows.fanouts.put_merged(posts[number], posts[0].post)
    merged = await rows.fanouts.find_merged_post_range("alice")
    await rows.fanouts.put_merged(posts[5], posts[4].post)
    again = await rows.fanouts.find_merged_post_range("alice")

    assert merged == Merged(posts[1].post, posts[3].post)
    assert again == Merged(posts[5].post, posts[5].post)
    assert await rows.fanouts.list_merged(posts[5].post) == {"alice": posts[5].post}
    assert await rows.fanouts.list_merged(IDS.next()) == {}
