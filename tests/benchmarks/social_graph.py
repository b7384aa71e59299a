"""Cost and duration of follows, likes and timeline fan-outs of the social graph.

    python -m tests.benchmarks.social_graph [--follows 2000] [--likes 10000] [--followers 20000]
        [--renewals 1000] [--out F.json]

Runs on a real Redis and the DynamoDB API server of the development environment, both empty.
DynamoDB is behind the limits of AWS (`chatserver.dev.aws_limits`), except for the fan-out. An
option of 0 skips its part.

*Follows*: many users follow one user, 128 at once, by service calls of this process. The counters
worker runs meanwhile.

*Likes*: many users like one post, once by service calls as fast as this process makes them, and
once as a burst: the edges exist already, and the likes enter the queue within seconds. The counters
worker runs meanwhile. The result has the writes to the post's count and their units as the server
reports them; a count without a queue needs one write per like.

*Renewals*: many users renew their companion session at once, and one session is renewed by many
requests at once.

*Fan-out*: one post of a user with many followers: time, rows, units.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import click

from chatserver import config
from chatserver.config import Settings
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import Ref, UserId
from chatserver.errors import ChatError
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import VersionChanges
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import CountQueue, PostWakeUp
from chatserver.features.social.model import Info, Post, PostIds, PostRef
from chatserver.features.social.settings import Timeline
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.fanouts import SHARDS
from chatserver.features.social.warm.social_items import INFO_ITEM
from chatserver.features.social.worker.counters import run_counters
from chatserver.features.social.worker.timeline_fanout import TimelineWorker
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import SOCIAL
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.integration.warm.support import settings_for
from tests.support.servers.limits import count_refusals
from tests.support.servers.processes import redis_url_of

AUTHOR = "star"
BURST_S = 4.0
LIKES_IN_FLIGHT, IN_FLIGHT = 64, 128
_WRITES = ("put_item", "update_item", "delete_item", "transact_write_items", "batch_write_item")


class Meter:
    """Counts write units by table, and writes of counts, for all calls of a client."""

    def __init__(self, client: DynamoClient) -> None:
        self.units: collections.Counter[str] = collections.Counter()
        self.count_writes = 0
        self.count_units = 0.0
        self._call_once = client.call_once
        client.call_once = self._count  # type: ignore[method-assign]  # only for the measurement

    def clear(self) -> None:
        self.units.clear()
        self.count_writes, self.count_units = 0, 0.0

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


class SocialGraph:
    """The measurements, on the servers of a container."""

    def __init__(self, container: StorageContainer) -> None:
        self._container = container
        self._social = container.get(SocialContainer)
        self._client = self._social.graph._table.client
        self._meter = Meter(self._client)

    async def measure_follows(self, follows: int) -> Figures:
        users = [UserId(f"fan{number:06d}") for number in range(follows)]
        await self._put_all(INFO_ITEM.encode(Info(user)) for user in [AUTHOR, *users])
        calls = [
            lambda user=user: self._social.follows.follow(user, UserId(AUTHOR)) for user in users
        ]
        self._meter.clear()
        async with self._run_counters():
            began, figures = time.monotonic(), await self._measure(calls)
            done = follows - figures["failed"]
            while (await self._social.profiles.find_profile(AUTHOR))[1].followers < done:
                await asyncio.sleep(0.05)
            counted_s = time.monotonic() - began - figures["seconds"]
        pages = self._social.graph.iter_edges(AUTHOR, is_follower=True)
        edges = sum([len(page) async for page in pages])
        counts = (await self._social.profiles.find_profile(AUTHOR))[1]
        assert counts.followers == edges == done, (counts, edges)
        return {
            **figures,
            "counted_after_the_last_s": round(counted_s, 2),
            "count_writes_of_the_followed_user": self._meter.count_writes,
            "write_units": dict(self._meter.units),
        }

    async def measure_likes(self, likes: int) -> Figures:
        users = [UserId(f"fan{number:06d}") for number in range(likes)]

        async def call(post: Post) -> None:
            ref = PostRef(post.id, post.author)
            calls = [lambda user=user: self._social.social.like(user, ref) for user in users]
            await self._measure(calls, LIKES_IN_FLIGHT)

        async def burst(post: Post) -> None:
            queue, began = CountQueue(self._container.hot, likes + 1), time.monotonic()
            for number in range(likes):
                await queue.add("likes", post.id, 1)
                ahead_s = number * BURST_S / likes - (time.monotonic() - began)
                if ahead_s > 0.01:
                    await asyncio.sleep(ahead_s)

        figures = Figures()
        async with self._run_counters():
            for name, work in (("service calls", call), ("burst", burst)):
                post = await self._create_post()
                if work is burst:
                    list_key = social.likelist_key(post.id)
                    keys = (social.row_key(list_key, social.user_key(user)) for user in users)
                    await self._put_all(key | {"at": {"N": "1"}} for key in keys)
                self._meter.clear()
                began = time.monotonic()
                await work(post)
                liked_s = time.monotonic() - began
                while (await self._social.likes.get_counts([post.id]))[post.id] < likes:
                    await asyncio.sleep(0.05)
                edges = Span(SOCIAL, social.likelist_key(post.id))
                assert await Table(self._client, SOCIAL).count(edges) == likes
                figures[name] = {
                    "liked_in_s": round(liked_s, 2),
                    "counted_after_the_last_s": round(time.monotonic() - began - liked_s, 2),
                    "count_writes": self._meter.count_writes,
                    "count_write_units": self._meter.count_units,
                    "write_units": dict(self._meter.units),
                }
        return figures

    async def measure_renewals(self, renewals: int) -> Figures:
        made = self._container.get(CompanionContainer)
        wanted = VersionChanges(
            name="Ada", prompt="You are Ada.", provider="scripted", model="echo"
        )
        ada = (await made.companions.create("ai-ada", wanted)).id
        users = [UserId(f"renewer{number:05d}") for number in range(renewals)]
        for user in users:
            await self._container.directory.put_user_if_absent(user, None, 1.0)
        sessions, first = made.sessions, Ref("first")
        created = await self._measure([lambda u=u: sessions.create(u, ada, first) for u in users])
        assert not created["failed"]
        refs = [Ref(f"r{number}") for number in range(renewals)]
        many = await self._measure([lambda u=u: sessions.renew(u, ada, Ref("next")) for u in users])
        one = await self._measure([lambda r=r: sessions.renew(users[0], ada, r) for r in refs])
        ended, start = list[str](), None
        while True:
            page = await made.session_rows.list_old(users[0], ada, limit=100, start=start)
            ended += [session.chat for session in page.items]
            if (start := page.next) is None:
                break
        active = (await sessions.get(users[0], ada)).session.chat
        assert active not in ended and len(set(ended)) == len(ended)
        return {"many sessions": many, "one session": {**one, "ended": len(ended)}}

    async def measure_fan_out(self, followers: int) -> Figures:
        users = [f"follower{number:06d}" for number in range(followers)]
        edges = (social.row_key(social.follower_key(AUTHOR), social.user_key(u)) for u in users)
        await self._put_all(edge | {"since": {"N": "1"}} for edge in edges)
        self._meter.clear()
        post = await self._create_post()
        spent = dict(self._meter.units)
        self._meter.clear()
        began = time.monotonic()
        for shard in range(SHARDS):
            wake_up = PostWakeUp(self._container.hot)
            await TimelineWorker(self._container, wake_up, shard, "load").step()
        took_s = time.monotonic() - began
        last = social.row_key(
            social.timeline_key(users[-1]), social.entry_key(PostRef(post.id, post.author))
        )
        request = {"TableName": self._table, "Key": last}
        assert "Item" in await self._client.call("get_item", request), "the last row is missing"
        return {
            "seconds": round(took_s, 2),
            "rows_per_second": round(followers / took_s),
            "write_units_of_the_post": spent,
            "write_units_of_the_fan_out": dict(self._meter.units),
        }

    async def _measure(
        self, calls: Sequence[Callable[[], Awaitable[Any]]], in_flight: int = IN_FLIGHT
    ) -> Figures:
        """Make calls concurrently; return their rate, and the requests that DynamoDB refused."""
        slots, endpoint, failed = asyncio.Semaphore(in_flight), self._client.endpoint, 0

        async def run(call: Callable[[], Awaitable[Any]]) -> None:
            nonlocal failed
            async with slots:
                try:
                    await call()
                except ChatError:
                    failed += 1

        before, began = count_refusals(endpoint), time.monotonic()
        await asyncio.gather(*map(run, calls))
        took_s = time.monotonic() - began
        return {
            "calls": len(calls),
            "in_flight": in_flight,
            "failed": failed,
            "refused": dict(count_refusals(endpoint) - before),
            "seconds": round(took_s, 2),
            "per_second": round(len(calls) / took_s),
        }

    @contextlib.asynccontextmanager
    async def _run_counters(self) -> AsyncIterator[None]:
        worker = asyncio.create_task(run_counters(self._container, "load"))
        yield
        worker.cancel()
        await asyncio.wait([worker])

    @property
    def _table(self) -> str:
        return self._container.settings.warm.table_prefix + "social"

    async def _put_all(self, items: Iterator[Item]) -> None:
        slots = asyncio.Semaphore(8)

        async def put(some: Sequence[Item]) -> None:
            async with slots:
                await put_items(self._client, self._table, some)

        everything = list(items)
        batches = range(0, len(everything), WRITES_MAX)
        await asyncio.gather(*(put(everything[at : at + WRITES_MAX]) for at in batches))

    async def _create_post(self) -> Post:
        ids = PostIds(SystemClock())
        post = Post(ids.next(), AUTHOR, "hello", int(time.time() * 1000))
        await self._social.posts.create_post(post)
        return post


@contextlib.asynccontextmanager
async def open_graph(redis_url: str, endpoint: str, followers: int) -> AsyncIterator[SocialGraph]:
    warm = settings_for(endpoint)
    settings = Settings(
        redis=config.Redis(url=redis_url),
        warm=warm,
        timeline=Timeline(fanout_followers_max=max(1, followers)),
    )
    async with open_dynamodb(warm) as client:
        await apply_tables(client, warm, poll_s=0.01)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        yield SocialGraph(container)


@benchmark(
    click.option("--follows", default=2_000, show_default=True),
    click.option("--likes", default=10_000, show_default=True),
    click.option("--followers", default=20_000, show_default=True),
    click.option("--renewals", default=1_000, show_default=True),
)
async def main(bench: Bench, follows: int, likes: int, followers: int, renewals: int) -> Figures:
    redis_url, dynamodb = redis_url_of(bench.start_redis()), bench.start_dynamodb()
    limits, figures = bench.start_aws_limits(dynamodb), Figures()
    async with open_graph(redis_url, limits.endpoint, followers) as graph:
        if follows:
            figures["follows"] = await graph.measure_follows(follows)
        if likes:
            figures["likes"] = await graph.measure_likes(likes)
        if renewals:
            figures["renewals"] = await graph.measure_renewals(renewals)
    async with open_graph(redis_url, dynamodb.endpoint, followers) as graph:
        if followers:
            figures["fan_out"] = await graph.measure_fan_out(followers)
    return figures


if __name__ == "__main__":
    main()
