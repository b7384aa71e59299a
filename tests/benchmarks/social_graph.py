"""Cost and duration of follows, likes and timeline fan-outs of the social graph.

    python -m tests.benchmarks.social_graph [--follows 2000] [--likes 10000] [--followers 20000]
        [--renewals 1000] [--out F.json]

Runs on a real Redis and the DynamoDB API server of the development environment, both empty.

DynamoDB is behind the limits of AWS (`chatserver.dev.aws_limits`), except for the fan-out.

*Follows*: many users follow one user, 128 at once, by service calls of this process. The counters
worker runs meanwhile.

*Renewals*: many users renew their companion session at once, and one session is renewed by many
requests at once.

*Likes*: many users like one post, once by service calls as fast as this process makes them, and
once as a burst: the edges exist already, and the likes enter the queue within seconds. The counters
worker runs meanwhile. The result has the writes to the post's count and their units as the server
reports them; a count without a queue needs one write per like.

*Fan-out*: one post of a user with many followers. Once uninterrupted: time, rows, units. Once by
worker processes, the first of which is killed in the middle: rows written before and again, and a
check that every follower has the post exactly once.

Prints the figures.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver import config
from chatserver.config import Settings
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.dev.servers import Server, aws_limits_launch, dynamodb_launch, redis_launch
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import Ref, UserId
from chatserver.errors import ChatError
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import Changes
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import CountQueue, PostWakeUp
from chatserver.features.social.model import Info, Post, PostIds, PostRef
from chatserver.features.social.settings import Timeline
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.fanouts import SHARDS, get_shard
from chatserver.features.social.worker import counters, timeline_fanout
from chatserver.features.social.worker.counters import run_counters
from chatserver.features.social.worker.timeline_fanout import TimelineWorker
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.benchmarks.output import out_option, write_figures
from tests.integration.warm.support import settings_for
from tests.integration.workers.support import variables_of
from tests.support.servers.limits import count_refusals
from tests.support.servers.processes import free_port, redis_url_of

AUTHOR = "star"
BURST_S = 4.0
IN_FLIGHT = 64
FOLLOWS_IN_FLIGHT = 128
RENEWALS_IN_FLIGHT = 128
_WRITES = ("put_item", "update_item", "delete_item", "transact_write_items", "batch_write_item")


class Meter:
    """Counts write units by table, and writes of counts, for all calls of a client."""

    def __init__(self, client: DynamoClient) -> None:
        self.units: collections.Counter[str] = collections.Counter()
        self.count_writes = 0
        self.count_units = 0.0
        self._call_once = client.call_once
        client.call_once = self._count  # type: ignore[method-assign]  # only for the measurement

    async def _count(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if operation not in _WRITES:
            return await self._call_once(operation, request)
        request = {**request, "ReturnConsumedCapacity": "TOTAL"}
        answer = await self._call_once(operation, request)
        used = answer.get("ConsumedCapacity", [])
        used = used if isinstance(used, list) else [used]
        for each in used:
            self.units[each["TableName"].rpartition("_")[2]] += each["CapacityUnits"]
        key = request.get("Key", {}).get("PK", {}).get("S", "")
        sort = request.get("Key", {}).get("SK", {}).get("S", "")
        is_count = key.endswith("#likecount") or (key, sort) == (f"u#{AUTHOR}", social.COUNT)
        if operation == "update_item" and is_count:
            self.count_writes += 1
            self.count_units += used[0]["CapacityUnits"]
        return answer


async def _put_all(client: DynamoClient, table: str, items: Iterator[Item]) -> None:
    slots = asyncio.Semaphore(8)

    async def put(some: Sequence[Item]) -> None:
        async with slots:
            await put_items(client, table, some)

    async with asyncio.TaskGroup() as group:
        batch: list[Item] = []
        for item in items:
            batch.append(item)
            if len(batch) == WRITES_MAX:
                group.create_task(put(batch))
                batch = []
        if batch:
            group.create_task(put(batch))


async def _post(container: StorageContainer, ids: PostIds) -> Post:
    post = Post(ids.next(), AUTHOR, "hello", int(time.time() * 1000))
    await container.get(SocialContainer).posts.create_post(post)
    return post


async def measure_likes(
    container: StorageContainer, client: DynamoClient, meter: Meter, likes: int
) -> dict[str, Any]:
    """Let `likes` users like one post, twice; see the module docstring."""
    found: dict[str, Any] = {"likes": likes, "flush_s": counters.FLUSH_S}
    made = container.get(SocialContainer)
    users = [UserId(f"fan{number:06d}") for number in range(likes)]
    worker = asyncio.create_task(run_counters(container, "load"))

    async def like(post: Post, remaining: list[UserId]) -> None:
        while remaining:
            await made.social.like(remaining.pop(), PostRef(post.id, post.author))

    async def use(post: Post) -> None:
        left = users[:]
        await asyncio.gather(*(like(post, left) for _ in range(IN_FLIGHT)))

    async def burst(post: Post) -> None:
        queue, began = CountQueue(container.hot, likes + 1), time.monotonic()
        for number in range(likes):
            await queue.add("likes", post.id, 1)
            ahead_s = number * BURST_S / likes - (time.monotonic() - began)
            if ahead_s > 0.01:
                await asyncio.sleep(ahead_s)

    for name, work in (("use case", use), ("burst", burst)):
        post = await _post(container, PostIds(SystemClock()))
        if work is burst:
            table = client_table(container)
            edges = (
                social.row_key(social.likelist_key(post.id), social.user_key(user))
                | {"at": {"N": "1"}}
                for user in users
            )
            await _put_all(client, table, edges)
        began = time.monotonic()
        meter.count_writes, meter.count_units = 0, 0.0
        meter.units.clear()
        await work(post)
        liked_s = time.monotonic() - began
        while (await container.get(SocialContainer).likes.get_counts([post.id]))[post.id] < likes:
            await asyncio.sleep(0.05)
        counted_s = time.monotonic() - began
        assert await container.get(SocialContainer).likes.count_likes(post.id) == likes
        found[name] = {
            "liked_in_s": round(liked_s, 2),
            "counted_after_the_last_s": round(counted_s - liked_s, 2),
            "count_writes": meter.count_writes,
            "count_write_units": meter.count_units,
            "likes_a_count_write": round(likes / meter.count_writes, 1),
            "write_units_in_all": dict(meter.units),
        }
    worker.cancel()
    await asyncio.wait([worker])
    return found


async def measure_follows(
    container: StorageContainer, client: DynamoClient, meter: Meter, follows: int
) -> dict[str, Any]:
    """Let `follows` users follow one user; see the module docstring."""
    made = container.get(SocialContainer)
    users = [UserId(f"fan{number:06d}") for number in range(follows)]
    infos = (social.INFO_ITEM.encode(Info(user)) for user in [AUTHOR, *users])
    await _put_all(client, client_table(container), infos)
    before = count_refusals(client.endpoint)
    left, failed = users[:], 0
    meter.units.clear()
    meter.count_writes = 0

    async def follow() -> None:
        nonlocal failed
        while left:
            try:
                await made.follows.follow(left.pop(), UserId(AUTHOR))
            except ChatError:
                failed += 1

    worker = asyncio.create_task(run_counters(container, "load"))
    began = time.monotonic()
    await asyncio.gather(*(follow() for _ in range(FOLLOWS_IN_FLIGHT)))
    followed_s = time.monotonic() - began
    while (await made.profiles.find_profile(AUTHOR))[1].followers < follows - failed:
        await asyncio.sleep(0.05)
    counted_s = time.monotonic() - began
    worker.cancel()
    await asyncio.wait([worker])
    refused = count_refusals(client.endpoint) - before
    edges = [
        edge async for page in made.graph.iter_edges(AUTHOR, is_follower=True) for edge in page
    ]
    counts = (await made.profiles.find_profile(AUTHOR))[1]
    assert counts.followers == len(edges) == follows - failed, (counts, len(edges))
    return {
        "follows": follows,
        "in_flight": FOLLOWS_IN_FLIGHT,
        "failed": failed,
        "refused": dict(refused),
        "seconds": round(followed_s, 2),
        "follows_a_second": round(follows / followed_s),
        "counted_after_the_last_s": round(counted_s - followed_s, 2),
        "count_writes_of_the_followed_user": meter.count_writes,
        "write_units_in_all": dict(meter.units),
    }


async def measure_renewals(
    container: StorageContainer, endpoint: str, renewals: int
) -> dict[str, Any]:
    """Renew `renewals` different sessions, then one session as often, 128 at once."""
    made = container.get(CompanionContainer)
    wanted = Changes(name="Ada", prompt="You are Ada.", provider="scripted", model="echo")
    ada = (await made.companions.create("ai-ada", wanted)).id
    users = [UserId(f"renewer{number:05d}") for number in range(renewals)]
    slots = asyncio.Semaphore(RENEWALS_IN_FLIGHT)

    async def run(call: Awaitable[Any]) -> int:
        async with slots:
            try:
                await call
            except ChatError:
                return 1
            return 0

    async def measure(calls: Sequence[Awaitable[Any]]) -> dict[str, Any]:
        before, began = count_refusals(endpoint), time.monotonic()
        failed = sum(await asyncio.gather(*map(run, calls)))
        took_s = time.monotonic() - began
        refused = dict(count_refusals(endpoint) - before)
        result = {"renewals": len(calls), "failed": failed, "seconds": round(took_s, 2)}
        return {**result, "refused": refused, "renewals_a_second": round(len(calls) / took_s)}

    for user in users:
        await container.directory.put_user_if_absent(user, None, 1.0)
    sessions = made.sessions
    first = Ref("first")
    assert not sum(await asyncio.gather(*(run(sessions.create(u, ada, first)) for u in users)))
    many = await measure([sessions.renew(user, ada, Ref("next")) for user in users])
    refs = [Ref(f"r{number}") for number in range(renewals)]
    one = await measure([sessions.renew(users[0], ada, ref) for ref in refs])
    ended: list[str] = []
    start: Any = None
    while True:
        page = await made.session_rows.list_old(users[0], ada, limit=100, start=start)
        ended += [session.chat for session in page.items]
        start = page.next
        if start is None:
            break
    active = (await sessions.get(users[0], ada)).session.chat
    assert active not in ended and len(set(ended)) == len(ended)
    return {"in_flight": RENEWALS_IN_FLIGHT, "many": many, "one": {**one, "ended": len(ended)}}


def client_table(container: StorageContainer) -> str:
    """Return the name of table `social`."""
    return container.settings.warm.table_prefix + "social"


async def measure_fan_out(
    container: StorageContainer, client: DynamoClient, meter: Meter, followers: int
) -> dict[str, Any]:
    """Add one post to the timelines of `followers` users, twice; see the module docstring."""
    users = [f"follower{number:06d}" for number in range(followers)]
    edges = (
        social.row_key(social.follower_key(AUTHOR), social.user_key(user)) | {"since": {"N": "1"}}
        for user in users
    )
    await _put_all(client, client_table(container), edges)
    meter.units.clear()
    await _post(container, PostIds(SystemClock()))
    spent = dict(meter.units)
    meter.units.clear()
    began = time.monotonic()
    for shard in range(SHARDS):
        await TimelineWorker(container, PostWakeUp(container.hot), shard, "load").step()
    whole_s = time.monotonic() - began
    found: dict[str, Any] = {
        "followers": followers,
        "page": timeline_fanout.PAGE,
        "uninterrupted": {
            "seconds": round(whole_s, 2),
            "rows_a_second": round(followers / whole_s),
            "write_units_of_the_post": spent,
            "write_units_of_the_fan_out": dict(meter.units),
        },
    }
    post = await _post(container, PostIds(SystemClock()))
    pages = -(-followers // timeline_fanout.PAGE)
    began = time.monotonic()
    failpoint = f"timeline.after_page:kill:{max(1, pages // 2)}"
    code = await asyncio.to_thread(_run_worker, container, failpoint)
    died_s = time.monotonic() - began
    assert code == -9, code
    at_death = await _count_lines(client, container, post, users)
    shard = get_shard(post.id)
    (job,) = await container.get(SocialContainer).fanouts.list_jobs(shard, 1)
    meter.units.clear()
    await asyncio.sleep(timeline_fanout.LEASE_S)
    began = time.monotonic()
    await TimelineWorker(container, PostWakeUp(container.hot), shard, "second").step()
    rest_s = time.monotonic() - began
    rows = await _count_lines(client, container, post, users)
    done = 0 if job.place is None else users.index(job.place) + 1
    assert rows == followers, rows
    found["killed"] = {
        "rows_when_it_died": at_death,
        "followers_noted_as_done": done,
        "rows_written_again": at_death - done,
        "seconds_until_it_died": round(died_s, 2),
        "seconds_of_the_rest": round(rest_s, 2),
        "followers_with_the_post": rows,
        "write_units_of_the_rest": dict(meter.units),
    }
    return found


def _run_worker(container: StorageContainer, failpoint: str) -> int:
    more = {"CHAT_FAILPOINT": failpoint}
    more["CHAT_TIMELINE_FANOUT_FOLLOWERS_MAX"] = "1000000"
    command = [sys.executable, "-m", "chatserver.cli.main", "worker", "timeline"]
    env = {**os.environ, **variables_of(container), **more}
    return subprocess.run(command, env=env, timeout=600, check=False).returncode


async def _count_lines(
    client: DynamoClient, container: StorageContainer, post: Post, users: Sequence[str]
) -> int:
    """Return how many of the users have the post in their timelines."""
    line = social.entry_key(PostRef(post.id, post.author))
    slots, found = asyncio.Semaphore(8), 0

    async def count(some: Sequence[str]) -> None:
        nonlocal found
        keys = [social.row_key(social.timeline_key(user), line) for user in some]
        request = {"RequestItems": {client_table(container): {"Keys": keys}}}
        async with slots:
            answer = await client.call("batch_get_item", request)
        found += len(answer["Responses"][client_table(container)])

    async with asyncio.TaskGroup() as group:
        for at in range(0, len(users), 100):
            group.create_task(count(users[at : at + 100]))
    return found


async def _run(
    redis_url: str, endpoint: str, follows: int, likes: int, followers: int, renewals: int
) -> dict[str, Any]:
    warm = settings_for(endpoint)
    settings = Settings(
        redis=config.Redis(url=redis_url),
        warm=warm,
        timeline=Timeline(fanout_followers_max=followers),
    )
    async with open_dynamodb(warm) as client:
        await apply_tables(client, warm, poll_s=0.01)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        client = container.get(SocialContainer).graph._table.client
        meter = Meter(client)
        found: dict[str, Any] = {}
        if follows:
            found["follows"] = await measure_follows(container, client, meter, follows)
        if followers:
            found["fan_out"] = await measure_fan_out(container, client, meter, followers)
        if likes:
            found["likes"] = await measure_likes(container, client, meter, likes)
        if renewals:
            found["renewals"] = await measure_renewals(container, client.endpoint, renewals)
        return found


@click.command()
@click.option("--follows", default=2_000, show_default=True)
@click.option("--likes", default=10_000, show_default=True)
@click.option("--followers", default=20_000, show_default=True)
@click.option("--renewals", default=1_000, show_default=True)
@out_option
def main(follows: int, likes: int, followers: int, renewals: int, out: Path | None) -> None:
    """Measure and print. An option of 0 keeps the earlier figures of that part in the file."""
    with tempfile.TemporaryDirectory() as folder:
        redis = Server(redis_launch(Path(folder) / "redis", free_port(), appendonly="no")).start()
        dynamodb = Server(dynamodb_launch(Path(folder) / "dynamodb", free_port())).start()
        limits_folder = Path(folder) / "limits"
        limits = Server(aws_limits_launch(limits_folder, free_port(), dynamodb.port)).start()
        try:
            url = redis_url_of(redis)
            found = uvloop.run(_run(url, limits.endpoint, follows, likes, 0, renewals))
            found |= uvloop.run(_run(url, dynamodb.endpoint, 0, 0, followers, 0))
        finally:
            limits.stop()
            dynamodb.kill()
            redis.kill()
    known = json.loads(out.read_text(encoding="utf-8")) if out is not None and out.exists() else {}
    figures = {**known, **found, "benchmark": "social graph"}
    write_figures(figures, out)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
