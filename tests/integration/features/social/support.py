"""Helpers of the tests of the social graph: repositories, rows and workers."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.features.social.hot import PostWakeUp
from chatserver.features.social.model import Post, PostId, PostIds, PostRef
from chatserver.features.social.warm.counts import SocialCounts
from chatserver.features.social.warm.fanouts import SHARDS, Fanouts
from chatserver.features.social.warm.favorites import SocialFavorites
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.timelines import SocialTimelines
from chatserver.features.social.worker.counters import CountersWorker
from chatserver.features.social.worker.timeline_fanout import TimelineWorker
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.client import Item
from tests.integration.warm.support import Tables

Row = dict[str, str | int]


@dataclasses.dataclass
class SocialRows:
    """The repositories of table `social`, and access to its rows."""

    tables: Tables
    profiles: SocialProfiles
    graph: FollowEdges
    counts: SocialCounts
    posts: SocialPosts
    likes: SocialLikes
    favorites: SocialFavorites
    timelines: SocialTimelines
    fanouts: Fanouts

    async def all(self, table: str = "social") -> dict[tuple[str, str], Row]:
        """Return all rows by key, read without the repositories."""
        found: dict[tuple[str, str], Row] = {}
        for item in await scan_all(self.tables, table):
            row = {name: _plain(value) for name, value in item.items()}
            found[str(row.pop("PK")), str(row.pop("SK"))] = row
        return found

    async def make_users(self, *users: str) -> None:
        directory = Directory(self.tables.client)
        for user in users:
            await directory.put_user_if_absent(user, f"Name of {user}", 1.0)

    async def post(
        self,
        author: str,
        content: str = "hello",
        id_: str = "",
        created_ms: int = 1_795_000_000_000,
    ) -> Post:
        made = Post(PostId(id_) if id_ else IDS.next(), author, content, created_ms)
        await self.posts.create_post(made)
        return made


IDS = PostIds(SystemClock())


async def scan_all(tables: Tables, table: str) -> list[Item]:
    request = {"TableName": tables.settings.table_prefix + table, "ConsistentRead": True}
    found: list[Item] = []
    while True:
        answer = await tables.client.call("scan", request)
        found += answer["Items"]
        if (last := answer.get("LastEvaluatedKey")) is None:
            return found
        request["ExclusiveStartKey"] = last


def _plain(value: dict[str, str]) -> str | int:
    ((kind, text),) = value.items()
    return int(text) if kind == "N" else text


def social_rows_of(tables: Tables) -> SocialRows:
    """Return the repositories of a test's tables."""
    return SocialRows(
        tables,
        SocialProfiles(tables.client),
        FollowEdges(tables.client),
        SocialCounts(tables.client),
        SocialPosts(tables.client),
        SocialLikes(tables.client),
        SocialFavorites(tables.client),
        SocialTimelines(tables.client),
        Fanouts(tables.client),
    )


def ref_of(post: Post) -> PostRef:
    """Return the reference to a post as stored in timelines."""
    return PostRef(post.id, post.author)


async def count_all(container: StorageContainer) -> None:
    while await make_counters_worker(container).step():
        pass


def make_counters_worker(container: StorageContainer, owner: str = "w1") -> CountersWorker:
    """Return the counters worker of the only partition."""
    return CountersWorker(container, 0, owner)


async def run_fanout_jobs(container: StorageContainer, owner: str = "w1") -> None:
    """Run the timeline worker of each shard until no job is left."""
    for shard in range(SHARDS):
        while await TimelineWorker(container, PostWakeUp(container.hot), shard, owner).step():
            pass


def make_user_ids(stem: str, count: int) -> list[UserId]:
    return [UserId(f"{stem}{n:03d}") for n in range(count)]


def edges_of(rows: dict[tuple[str, str], Row]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return (follower, user) pairs from the follower rows and from the following rows."""
    followers, following = set(), set()
    for partition, sort in rows:
        other = sort.removeprefix("u#")
        match partition.split("#"):
            case ["u", user, "follower"]:
                followers.add((other, user))
            case ["u", user, "following"]:
                following.add((user, other))
    return followers, following


async def call_api(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    """Make a request, check that it succeeds, and return the body."""
    answer = await client.request(method, path, json=body)
    assert answer.is_success, (method, path, answer.text)
    return answer.json() if answer.content else None
