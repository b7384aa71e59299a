"""Posts in the `social` table; see `chatserver.features.social.warm.social_items`.

One transaction creates a post with its like count and its fan-out job
(`chatserver.features.social.warm.fanouts`) and updates the author's post count, so every post
reaches the timelines. One transaction deletes a post and creates a job that removes its likes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from chatserver.errors import Conflict, NotFound
from chatserver.features.social.model import Post, PostId, PostRef
from chatserver.features.social.tables import FanoutField
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.fanouts import JobKind, job_key
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Key, try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

NO_POST = "post: no such post"


class SocialPosts:
    """Reads and writes posts."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)
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
        likes = social.likecount_key(post.id), social.COUNT
        actions = [
            table.create_action(social.POST.encode(post)),
            table.count_action(post.author, Field.POSTS, 1),
            table.create_action(likes, {Field.N: 0}),
            self._build_job_put("post", post.author, post.id, post.created_ms),
        ]
        try:
            await table.transact(actions)
        except ConditionFailed as exc:
            existing = exc.stored[0]
            if existing is None or social.POST.decode(existing) != post:
                raise Conflict("post: this id is already used") from None

    async def edit_post(
        self, author: str, id_: PostId, changes: dict[str, str | None], now_ms: int
    ) -> tuple[Post, Post]:
        """Change a post's `content` and `image`; return the old and new versions. Idempotent.

        Raises:
            NotFound: there is no such post.
        """
        fields = {"content": Field.CONTENT, "image": Field.IMAGE}
        attributes = {fields[name]: text for name, text in changes.items()}
        key = _post_row(PostRef(id_, author))
        try:
            item = await self._table.update(
                key, {Field.EDITED: now_ms, **attributes}, "old", if_=social.EXISTS
            )
        except ConditionFailed:
            raise NotFound(NO_POST) from None
        before = social.POST.decode(item)
        # `content` in `changes` is never None.
        return before, dataclasses.replace(before, edited_ms=now_ms, **changes)  # type: ignore[arg-type]

    async def delete_post(self, author: str, id_: PostId, now_ms: int) -> bool:
        """Delete a post, and create a job that removes its likes; return False if not found.

        Guarantees:
            Atomic; a retry changes nothing. Cost: one transaction of four items.
        """
        table = self._table
        actions = [
            table.remove_action(_post_row(PostRef(id_, author))),
            table.count_action(author, Field.POSTS, -1),
            table.delete_action((social.likecount_key(id_), social.COUNT)),
            self._build_job_put("gone", author, id_, now_ms),
        ]
        return await try_write(table.transact(actions))

    async def get_post(self, author: str, id_: PostId) -> Post:
        """Return a post. Strongly consistent; concurrent calls share a BatchGetItem.

        Raises:
            NotFound: there is no such post.
        """
        items = await self._reads.get([self._table.encode_key(_post_row(PostRef(id_, author)))])
        if not items:
            raise NotFound(NO_POST)
        return social.POST.decode(items[0])

    async def find_posts(self, post_refs: Collection[PostRef]) -> dict[PostRef, Post]:
        """Return the posts that exist, in their current version. Cost: one call per 100 posts."""
        items = await self._table.get_items([_post_row(each) for each in sorted(set(post_refs))])
        return {PostRef(post.id, post.author): post for post in map(social.POST.decode, items)}

    async def list_posts(self, author: str, start: Token | None, limit: int) -> QueryPage[Post]:
        """Return a page of a user's posts, newest first. Strongly consistent, one Query."""
        span = Span(SOCIAL, social.posts_key(author))
        query = self._table.build_query(span, is_newest_first=True)

        async def load(rows: list[Item]) -> Sequence[Post]:
            return [social.POST.decode(row) for row in rows]

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
        rows = await self._table.query(
            span, limit=limit, is_newest_first=True, is_consistent=is_consistent
        )
        return [social.POST.decode(row).id for row in rows]

    def _build_job_put(self, kind: JobKind, author: str, id_: PostId, now_ms: int) -> Action:
        key = job_key(kind, PostRef(id_, author))
        return self._table.directory.put_action(key, {FanoutField.CREATED: now_ms})


def _post_row(post_ref: PostRef) -> Key:
    return social.POST.key(author=post_ref.author, id=post_ref.post)
