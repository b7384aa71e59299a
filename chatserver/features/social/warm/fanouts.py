"""Fan-out jobs for posts, and like removal jobs for deleted posts: items in the `directory` table.

    PK "fanout#<shard>"  SK "<ulid>#<kind>#<author>"  created N (ms)  place? S
    PK "merged"          SK "merged#<author>"         first S  last S

A `fanout` item is a job. A `post` job adds a post to the timelines of its author's followers, and a
`gone` job removes the likes of a deleted post. A job is written in the transaction that creates or
deletes the post, and deleted when it is done. `place` is its checkpoint: the last follower that was
processed.

A `merged` item stands for an author with too many followers for fan-out on write. The author's
posts from `first` on are merged into timelines at read time; `last` is the newest of them. The item
is used until post `last` is too old for timelines.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Final, Literal, cast

from chatserver.config import Warm
from chatserver.errors import CorruptData
from chatserver.features.social.model import PostId, PostRef
from chatserver.features.social.tables import FanoutField as Field
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY

SHARDS: Final = 8
MERGED: Final = "merged"
MERGED_MAX: Final = 1_000  # posts of at most this many authors are merged on read
JobKind = Literal["post", "gone"]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A job for a post: its fan-out, or the removal of its likes.

    `place` is the last follower that the fan-out has processed.
    """

    kind: JobKind
    post_ref: PostRef
    created_ms: int
    place: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """An author's first and newest posts that are merged into timelines on read."""

    first: PostId
    last: PostId


def get_shard(post: PostId) -> int:
    """Return the shard of a post's jobs: their partition key is ``fanout#<shard>``."""
    return zlib.crc32(post.encode()) % SHARDS


def job_key(kind: JobKind, post_ref: PostRef) -> Item:
    return row_key(
        f"fanout#{get_shard(post_ref.post)}", f"{post_ref.post}#{kind}#{post_ref.author}"
    )


def encode_job(kind: JobKind, post_ref: PostRef, now_ms: int) -> Item:
    return job_key(kind, post_ref) | {Field.CREATED: {"N": str(now_ms)}}


def decode_job(item: Item) -> Job:
    """Decode a job. Raises CorruptData."""
    try:
        post, kind, author = item[Field.SK]["S"].split("#")
        created_ms = int(item[Field.CREATED]["N"])
    except (KeyError, ValueError) as exc:
        raise CorruptData(f"table directory: {item.get(Field.SK)} is not a fan-out job") from exc
    place = item[Field.PLACE]["S"] if Field.PLACE in item else None
    return Job(cast(JobKind, kind), PostRef(PostId(post), author), created_ms, place)


class Fanouts:
    """Reads and writes fan-out items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def list_jobs(self, shard: int, limit: int) -> list[Job]:
        """Return the jobs in a shard (see `get_shard`), oldest post first. Strongly consistent."""
        span = Span(DIRECTORY, f"fanout#{shard}")
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit}
        return [decode_job(item) for item in (await self._client.call("query", request))["Items"]]

    async def save_checkpoint(self, job: Job, place: str) -> None:
        """Advance a job's checkpoint; never move it back. A finished job is not recreated."""
        await self._update(
            {
                "Key": job_key(job.kind, job.post_ref),
                "UpdateExpression": "SET #place = :place",
                "ConditionExpression": (
                    "attribute_exists(#pk) AND (attribute_not_exists(#place) OR #place < :place)"
                ),
                "ExpressionAttributeNames": {"#pk": Field.PK, "#place": Field.PLACE},
                "ExpressionAttributeValues": {":place": {"S": place}},
            }
        )

    async def finish(self, job: Job) -> None:
        """Delete a finished job. Idempotent."""
        key = job_key(job.kind, job.post_ref)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def find_merged_post_range(self, author: str) -> Merged | None:
        """Return which posts of an author are merged on read. Strongly consistent."""
        key = row_key(MERGED, f"{MERGED}#{author}")
        item = await find_item(self._client, self._table, key)
        return None if item is None else _decode_merged(item)

    async def put_merged(self, post_ref: PostRef, oldest: PostId) -> None:
        """Record a post for merging at read time. Idempotent.

        `oldest` is the oldest post id in timelines. If the author's last merged post is older, the
        author's merged posts begin again with `post_ref`.
        """
        key = row_key(MERGED, f"{MERGED}#{post_ref.author}")
        values = {":post": {"S": post_ref.post}}
        begin = {
            "Key": key,
            "UpdateExpression": "SET #first = :post, #last = :post",
            "ConditionExpression": "attribute_not_exists(#last) OR #last < :oldest",
            "ExpressionAttributeNames": {"#first": Field.FIRST, "#last": Field.LAST},
            "ExpressionAttributeValues": values | {":oldest": {"S": oldest}},
        }
        if await self._update(begin):
            return
        newest = {
            "Key": key,
            "UpdateExpression": "SET #last = :post",
            "ConditionExpression": "#last < :post",
            "ExpressionAttributeNames": {"#last": Field.LAST},
            "ExpressionAttributeValues": values,
        }
        if await self._update(newest):
            return
        first = {
            "Key": key,
            "UpdateExpression": "SET #first = :post",
            "ConditionExpression": "#first > :post",
            "ExpressionAttributeNames": {"#first": Field.FIRST},
            "ExpressionAttributeValues": values,
        }
        await self._update(first)

    async def list_merged(self, since: PostId) -> dict[str, PostId]:
        """Return `{author: oldest merged post}` for authors whose posts are merged on read.

        Includes up to `MERGED_MAX` authors whose newest merged post is `since` or later.
        """
        span = Span(DIRECTORY, MERGED)
        request: dict[str, Any] = {**span.query(self._settings), "Limit": MERGED_MAX}
        merged_posts: dict[str, PostId] = {}
        while len(merged_posts) < MERGED_MAX:
            response = await self._client.call("query", request)
            for item in response["Items"]:
                merged = _decode_merged(item)
                if merged.last >= since and len(merged_posts) < MERGED_MAX:
                    merged_posts[item[Field.SK]["S"].removeprefix(f"{MERGED}#")] = merged.first
            if (last := response.get("LastEvaluatedKey")) is None:
                break
            request["ExclusiveStartKey"] = last
        return merged_posts

    async def remove_author(self, author: str) -> None:
        """Delete an author's `merged` item. Idempotent."""
        key = row_key(MERGED, f"{MERGED}#{author}")
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def _update(self, request: dict[str, Any]) -> bool:
        return await write_conditionally(
            self._client, "update_item", {"TableName": self._table, **request}
        )


def _decode_merged(item: Item) -> Merged:
    return Merged(PostId(item[Field.FIRST]["S"]), PostId(item[Field.LAST]["S"]))
