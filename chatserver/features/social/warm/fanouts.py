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
from typing import Final, Literal, cast

from chatserver.errors import CorruptData
from chatserver.features.social.model import PostId, PostRef
from chatserver.features.social.tables import FanoutField as Field
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr, Changes, Condition
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.tables import DIRECTORY

SHARDS: Final = 8
MERGED: Final = "merged"
MERGED_MAX: Final = 1_000  # posts of at most this many authors are merged on read
JobKind = Literal["post", "gone"]


@dataclasses.dataclass(frozen=True, slots=True)
class FanoutJob:
    """A job for a post: its fan-out, or the removal of its likes.

    `checkpoint` is the last follower that the fan-out has processed.
    """

    kind: JobKind
    post_ref: PostRef
    created_ms: int
    checkpoint: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """An author's first and newest posts that are merged into timelines on read."""

    first: PostId
    last: PostId


MERGED_ITEM: Final = Codec(Merged, MERGED, MERGED + "#{author}", first=Field.FIRST, last=Field.LAST)


def get_shard(post: PostId) -> int:
    """Return the shard of a post's jobs: their partition key is ``fanout#<shard>``."""
    return zlib.crc32(post.encode()) % SHARDS


def job_key(kind: JobKind, post_ref: PostRef) -> tuple[str, str]:
    return f"fanout#{get_shard(post_ref.post)}", f"{post_ref.post}#{kind}#{post_ref.author}"


def decode_job(item: Item) -> FanoutJob:
    """Decode a job. Raises CorruptData."""
    try:
        post, kind, author = item[Field.SK]["S"].split("#")
        created_ms = int(item[Field.CREATED]["N"])
    except (KeyError, ValueError) as exc:
        raise CorruptData(f"table directory: {item.get(Field.SK)} is not a fan-out job") from exc
    checkpoint = item[Field.CHECKPOINT]["S"] if Field.CHECKPOINT in item else None
    return FanoutJob(cast(JobKind, kind), PostRef(PostId(post), author), created_ms, checkpoint)


class Fanouts:
    """Reads and writes fan-out items."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def list_jobs(self, shard: int, limit: int) -> list[FanoutJob]:
        """Return the jobs in a shard (see `get_shard`), oldest post first. Strongly consistent."""
        rows = await self._table.query(Span(DIRECTORY, f"fanout#{shard}"), limit=limit)
        return [decode_job(row) for row in rows]

    async def save_checkpoint(self, job: FanoutJob, checkpoint: str) -> None:
        """Advance a job's checkpoint; never move it back. A finished job is not recreated."""
        has_less = Attr(Field.CHECKPOINT).is_absent | (Attr(Field.CHECKPOINT) < checkpoint)
        write = self._table.update(
            job_key(job.kind, job.post_ref),
            {Field.CHECKPOINT: checkpoint},
            if_=Attr(Field.PK).exists & has_less,
        )
        await try_write(write)

    async def finish(self, job: FanoutJob) -> None:
        """Delete a finished job. Idempotent."""
        await self._table.delete(job_key(job.kind, job.post_ref))

    async def find_merged_post_range(self, author: str) -> Merged | None:
        """Return which posts of an author are merged on read. Strongly consistent."""
        item = await self._table.find(MERGED_ITEM.key(author=author))
        return None if item is None else MERGED_ITEM.decode(item)

    async def put_merged(self, post_ref: PostRef, oldest: PostId) -> None:
        """Record a post for merging at read time. Idempotent.

        `oldest` is the oldest post id in timelines. If the author's last merged post is older, the
        author's merged posts begin again with `post_ref`.
        """
        first, last, post = Attr(Field.FIRST), Attr(Field.LAST), post_ref.post
        writes: tuple[tuple[Changes, Condition], ...] = (
            ({Field.FIRST: post, Field.LAST: post}, last.is_absent | (last < oldest)),
            ({Field.LAST: post}, last < post),
            ({Field.FIRST: post}, first > post),
        )
        key = MERGED_ITEM.key(author=post_ref.author)
        for changes, condition in writes:
            if await try_write(self._table.update(key, changes, if_=condition)):
                return

    async def list_merged(self, since: PostId) -> dict[str, PostId]:
        """Return `{author: oldest merged post}` for authors whose posts are merged on read.

        Includes up to `MERGED_MAX` authors whose newest merged post is `since` or later.
        """
        merged_posts: dict[str, PostId] = {}
        async for items in self._table.iter_query(
            Span(DIRECTORY, MERGED), limit=MERGED_MAX, is_consistent=False
        ):
            for item in items:
                merged = MERGED_ITEM.decode(item)
                if merged.last >= since:
                    merged_posts[item[Field.SK]["S"].removeprefix(f"{MERGED}#")] = merged.first
                    if len(merged_posts) >= MERGED_MAX:
                        return merged_posts
        return merged_posts

    async def remove_author(self, author: str) -> None:
        """Delete an author's `merged` item. Idempotent."""
        await self._table.delete(MERGED_ITEM.key(author=author))
