"""Posts in the `social` table; see `chatserver.features.social.warm.social_items`.

One transaction creates a post with its like count and its fan-out job
(`chatserver.features.social.warm.fanouts`) and updates the author's post count, so every post
reaches the timelines. One transaction deletes a post and creates a job that removes its likes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from chatserver.config import Warm
from chatserver.errors import Conflict, NotFound
from chatserver.features.social.model import Post, PostId, PostRef
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.fanouts import JobKind, encode_job
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.paging import Page, Span, Token, read_page
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

NO_POST = "post: no such post"


class SocialPosts:
    """Reads and writes posts."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)
        self._reads = BatchedReads(client, self._table.name)

    async def create_post(self, post: Post) -> None:
        """Store a post, count it and create its fan-out job.

        Guarantees:
            Atomic; a retry with the same post changes nothing.
            Cost: one transaction of four items.

        Raises:
            Conflict: the id belongs to another post.
            Unavailable: the post may have been stored.
        """
        table = self._table
        likes = social.row_key(social.likecount_key(post.id), social.COUNT)
        actions = [
            table.put(social.encode_post(post)),
            table.count(post.author, Field.POSTS, 1),
            table.put(likes | {Field.N: {"N": "0"}}),
            self._build_job_put("post", post.author, post.id, post.created_ms),
        ]
        try:
            await table.transact(actions)
        except ConditionFailed as exc:
            existing = exc.stored[0]
            if existing is None or social.decode_post(existing) != post:
                raise Conflict("post: this id is already used") from None

    async def edit_post(
        self, author: str, id_: PostId, changes: dict[str, str | None], now_ms: int
    ) -> tuple[Post, Post]:
        """Change a post's `content` and `image`; return the old and new versions. Idempotent.

        Raises:
            NotFound: there is no such post.
        """
        fields = {"content": Field.CONTENT, "image": Field.IMAGE}
        sets = {fields[name]: text for name, text in changes.items() if text is not None}
        removed = [f"#{fields[name]}" for name, text in changes.items() if text is None]
        parts = ["SET #edited = :edited", *(f"#{name} = :{name}" for name in sets)]
        update = ", ".join(parts) + (" REMOVE " + ", ".join(removed) if removed else "")
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Key": social.row_key(social.posts_key(author), social.post_key(id_)),
            "UpdateExpression": update,
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#pk": Field.PK,
                "#edited": Field.EDITED,
                **{f"#{fields[name]}": fields[name] for name in changes},
            },
            "ExpressionAttributeValues": {
                ":edited": {"N": str(now_ms)},
                **{f":{name}": {"S": text} for name, text in sets.items()},
            },
            "ReturnValues": "ALL_OLD",
        }
        try:
            response = await self._table.client.call("update_item", request)
        except ConditionFailed:
            raise NotFound(NO_POST) from None
        before = social.decode_post(response["Attributes"])
        # `content` in `changes` is never None.
        return before, dataclasses.replace(before, edited_ms=now_ms, **changes)  # type: ignore[arg-type]

    async def delete_post(self, author: str, id_: PostId, now_ms: int) -> bool:
        """Delete a post, and create a job that removes its likes; return False if not found.

        Guarantees:
            Atomic; a retry changes nothing. Cost: one transaction of four items.
        """
        table = self._table
        likes = social.row_key(social.likecount_key(id_), social.COUNT)
        actions = [
            table.delete(social.row_key(social.posts_key(author), social.post_key(id_))),
            table.count(author, Field.POSTS, -1),
            {"Delete": {"TableName": table.name, "Key": likes}},
            self._build_job_put("gone", author, id_, now_ms),
        ]
        try:
            await table.transact(actions)
        except ConditionFailed:
            return False
        return True

    async def get_post(self, author: str, id_: PostId) -> Post:
        """Return a post. Strongly consistent; concurrent calls share a BatchGetItem.

        Raises:
            NotFound: there is no such post.
        """
        items = await self._reads.get(
            [social.row_key(social.posts_key(author), social.post_key(id_))]
        )
        if not items:
            raise NotFound(NO_POST)
        return social.decode_post(items[0])

    async def find_posts(self, post_refs: Collection[PostRef]) -> dict[PostRef, Post]:
        """Return the posts that exist, in their current version. Cost: one call per 100 posts."""
        keys = [
            social.row_key(social.posts_key(post_ref.author), social.post_key(post_ref.post))
            for post_ref in sorted(set(post_refs))
        ]
        items = await get_items(self._table.client, self._table.name, keys)
        return {PostRef(post.id, post.author): post for post in map(social.decode_post, items)}

    async def list_posts(self, author: str, start: Token | None, limit: int) -> Page[Post]:
        """Return a page of a user's posts, newest first. Strongly consistent, one Query."""
        span = Span(SOCIAL, social.posts_key(author))
        query = span.query(self._table.settings)
        query |= {"ScanIndexForward": False, "ConsistentRead": True}

        async def load(rows: list[Item]) -> Sequence[Post]:
            return [social.decode_post(row) for row in rows]

        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def list_before(
        self, author: str, before: PostId | None, first: PostId, limit: int
    ) -> list[PostId]:
        """Return the ids of a user's newest posts in ``[first, before)``, newest first."""
        if before is not None and before <= first:
            return []
        ids = await self._list_ids(author, before, first, limit + (before is not None))
        return [id_ for id_ in ids if id_ != before][:limit]

    async def list_newest(self, author: str, first: PostId, limit: int) -> list[PostId]:
        """Return the ids of a user's newest posts from `first` on. Strongly consistent."""
        return await self._list_ids(author, None, first, limit, is_consistent=True)

    async def _list_ids(
        self,
        author: str,
        last: PostId | None,
        first: PostId,
        limit: int,
        *,
        is_consistent: bool = False,
    ) -> list[PostId]:
        # '~' sorts after every character of an id.
        high = social.post_key(last) if last is not None else "p#~"
        span = Span(SOCIAL, social.posts_key(author), between=(social.post_key(first), high))
        query = span.query(self._table.settings) | {"ScanIndexForward": False, "Limit": limit}
        query["ConsistentRead"] = is_consistent
        rows = (await self._table.client.call("query", query))["Items"]
        return [social.decode_post(row).id for row in rows]

    def _build_job_put(
        self, kind: JobKind, author: str, id_: PostId, now_ms: int
    ) -> dict[str, Any]:
        item = encode_job(kind, PostRef(id_, author), now_ms)
        return {"Put": {"TableName": self._table.directory, "Item": item}}
