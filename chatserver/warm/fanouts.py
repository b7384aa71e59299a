"""Posts on their way to timelines, and likes of posts that are gone: rows of table `directory`.

    PK "fanout#<shard>"  SK "<ulid>#<kind>#<author>"  created N (ms)  place? S
    PK "merged"          SK "merged#<author>"         last S

The first are jobs: `post` brings a post to the timelines of its author's followers, `gone` takes
the likes of a deleted one away. A job is written in the transaction that makes or deletes the post,
and removed when it is done; `place` is the follower up to whom it is. So a worker that dies is
followed by one that goes on there.

The second name authors whose posts are not brought to timelines, for too many follow them: readers
merge these posts in, down from the newest (`last`).
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Final, Literal, cast

from chatserver.config import Warm
from chatserver.domain.social import Line, PostId
from chatserver.errors import CorruptData
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import FanoutField as Field
from chatserver.warm.paging import Span
from chatserver.warm.records import row_key
from chatserver.warm.tables import DIRECTORY

SHARDS: Final = 8
MERGED: Final = "merged"
MERGED_MAX: Final = 1_000  # authors whose posts are merged
JobKind = Literal["post", "gone"]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is to be done about a post, and up to where (`place`) it is."""

    kind: JobKind
    line: Line
    created_ms: int
    place: str | None = None


def shard_of(post: PostId) -> int:
    """Return the shard of a post's jobs."""
    return zlib.crc32(post.encode()) % SHARDS


def job_key(kind: JobKind, line: Line) -> Item:
    """Return the key of a job."""
    return row_key(f"fanout#{shard_of(line.post)}", f"{line.post}#{kind}#{line.author}")


def encode_job(kind: JobKind, line: Line, now_ms: int) -> Item:
    """Return the row of a job that has not begun."""
    return job_key(kind, line) | {Field.CREATED: {"N": str(now_ms)}}


def decode_job(item: Item) -> Job:
    """Return the job of a row. Raises CorruptData."""
    try:
        post, kind, author = item[Field.SK]["S"].split("#")
        created_ms = int(item[Field.CREATED]["N"])
    except (KeyError, ValueError) as exc:
        raise CorruptData(f"directory: {item.get(Field.SK)} is no fan-out") from exc
    place = item[Field.PLACE]["S"] if Field.PLACE in item else None
    return Job(cast(JobKind, kind), Line(PostId(post), author), created_ms, place)


class Fanouts:
    """Reads and writes the rows."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def list_jobs(self, shard: int, limit: int) -> list[Job]:
        """Return jobs of a shard, those of the oldest posts first. Consistent."""
        span = Span(DIRECTORY, f"fanout#{shard}")
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit}
        return [decode_job(item) for item in (await self._client.call("query", request))["Items"]]

    async def note(self, job: Job, place: str) -> None:
        """Note up to where a job is. It never goes back; of one that is done nothing is kept."""
        await self._update(
            {
                "Key": job_key(job.kind, job.line),
                "UpdateExpression": "SET #place = :place",
                "ConditionExpression": (
                    "attribute_exists(#pk) AND (attribute_not_exists(#place) OR #place < :place)"
                ),
                "ExpressionAttributeNames": {"#pk": Field.PK, "#place": Field.PLACE},
                "ExpressionAttributeValues": {":place": {"S": place}},
            }
        )

    async def finish(self, job: Job) -> None:
        """Forget a job that is done. Idempotent."""
        key = job_key(job.kind, job.line)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def put_merged(self, line: Line) -> None:
        """Note that a post is not brought to timelines. Idempotent."""
        await self._update(
            {
                "Key": row_key(MERGED, f"{MERGED}#{line.author}"),
                "UpdateExpression": "SET #last = :last",
                "ConditionExpression": "attribute_not_exists(#last) OR #last < :last",
                "ExpressionAttributeNames": {"#last": Field.LAST},
                "ExpressionAttributeValues": {":last": {"S": line.post}},
            }
        )

    async def list_merged(self, since: PostId) -> list[str]:
        """Return authors who have posts from `since` on that readers merge; bounded."""
        span = Span(DIRECTORY, MERGED)
        request: dict[str, Any] = {**span.query(self._settings), "Limit": MERGED_MAX}
        found: list[str] = []
        while len(found) < MERGED_MAX:
            answer = await self._client.call("query", request)
            found += [
                item[Field.SK]["S"].removeprefix(f"{MERGED}#")
                for item in answer["Items"]
                if item[Field.LAST]["S"] >= since
            ]
            if (last := answer.get("LastEvaluatedKey")) is None:
                break
            request["ExclusiveStartKey"] = last
        return found[:MERGED_MAX]

    async def remove_author(self, author: str) -> None:
        """Forget an author whose posts are merged. Idempotent."""
        key = row_key(MERGED, f"{MERGED}#{author}")
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def _update(self, request: dict[str, Any]) -> None:
        try:
            await self._client.call("update_item", {"TableName": self._table, **request})
        except ConditionFailed:
            return  # it is further, or done
