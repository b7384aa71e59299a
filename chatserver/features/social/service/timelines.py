"""Timelines: reads, and the backfill after a follow.

::

    entries of the timeline ───────┐ newest first
    posts of followed authors with ├──► merge ──► still followed? ──► current posts
    too many followers (merged) ───┘                └── no: omitted     └── deleted: entry removed

Timeline entries refer to posts and do not contain them. Every page except the last is full, unless
`ROUNDS_MAX` reads do not fill it.

When a user follows an author, entries for the author's newest `BACKFILL_POSTS_MAX` posts are added
to the user's timeline. If an author has too many followers, new posts are not written to timelines;
they are merged in when a timeline is read. An author's merged posts begin with the first post that
was not written to the followers' timelines.
"""

from __future__ import annotations

import asyncio
from typing import Final

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.features.social.model import Post, PostId, PostRef, first_post_id, get_created_ms
from chatserver.features.social.service.social import PostView, Social
from chatserver.features.social.settings import Timeline as Settings
from chatserver.features.social.warm.fanouts import Fanouts
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.timelines import SocialTimelines
from chatserver.warm.dynamo.shared_reads import SharedReads

BACKFILL_POSTS_MAX: Final = 20
MERGED_CACHE_S: Final = 5.0
DAY_S: Final = 86_400
MERGED_MAX = 50  # a read merges the posts of at most this many followed authors

ROUNDS_MAX: Final = 10
CHUNK_MIN: Final = 50


class MergedAuthors:
    """The authors whose posts are merged when a timeline is read; cached for `MERGED_CACHE_S`."""

    def __init__(self, fanouts: Fanouts, settings: Settings, clock: Clock) -> None:
        self._fanouts = fanouts
        self._days = settings.days
        self._clock = clock
        self._read_at = float("-inf")
        self._authors: dict[str, PostId] = {}

    async def get_authors(self) -> dict[str, PostId]:
        """Return `{author: oldest merged post}` for authors whose posts are merged on read."""
        if self._clock.monotonic() >= self._read_at + MERGED_CACHE_S:
            self._authors = await self._fanouts.list_merged(self.get_oldest())
            self._read_at = self._clock.monotonic()
        return self._authors

    def get_oldest(self) -> PostId:
        """Return a lower bound of the post ids in timelines."""
        return first_post_id(self._clock.time() - self._days * DAY_S)


class TimelineBackfill:
    """Adds an author's newest posts to the timeline of a new follower."""

    def __init__(
        self,
        *,
        timeline_rows: SocialTimelines,
        posts: SocialPosts,
        merged: MergedAuthors,
        settings: Settings,
    ) -> None:
        self._timeline_rows = timeline_rows
        self._posts = posts
        self._newest = SharedReads(self._list_newest)
        self._merged = merged
        self._days = settings.days

    async def run(self, user: str, author: str) -> None:
        """Add the newest posts of `author` to the timeline of `user`.

        Call this after the follow is stored: from then on, new posts are fanned out to the user.

        Guarantees:
            Idempotent. Cost: one Query, shared by concurrent follows of an author, and one write
            unit per post.

        Raises:
            Unavailable: some entries may be missing.
        """
        merged = await self._merged.get_authors()
        newest = await self._newest.get(author)
        first_merged = merged.get(author)
        entries = [
            (user, PostRef(post, author), get_created_ms(post) // 1000 + self._days * DAY_S)
            for post in newest
            if first_merged is None or post < first_merged
        ]
        await self._timeline_rows.put_entries(entries)

    async def _list_newest(self, author: str) -> list[PostId]:
        return await self._posts.list_newest(author, self._merged.get_oldest(), BACKFILL_POSTS_MAX)


@attrs.define(eq=False, repr=False, kw_only=True)
class Timelines:
    """Reads timelines."""

    _timeline_rows: SocialTimelines
    _posts: SocialPosts
    _graph: FollowEdges
    _merged: MergedAuthors
    _social: Social
    _clock: Clock

    async def read(
        self, user: UserId, before: PostRef | None, limit: int
    ) -> tuple[list[PostView], PostRef | None]:
        """Return a page of a user's timeline, newest first, and the `before` of the next page.

        A timeline contains the user's own posts and the posts of followed users.

        Guarantees:
            No post appears twice, even on different pages. Deleted posts, and posts of users who
            are no longer followed, are omitted.
            Cost: usually one Query, another per author whose posts are merged on read, and up to
            seven BatchGetItem calls.
        """
        merged = await self._list_merged(user)
        posts: list[Post] = []
        for _ in range(ROUNDS_MAX):
            size = max(limit + 1 - len(posts), CHUNK_MIN)
            entries, is_more = await self._list_entries(user, merged, before, size)
            for post in await self._load(user, entries):
                if len(posts) == limit:
                    return await self._social.build_views(user, posts), PostRef(
                        posts[-1].id, posts[-1].author
                    )
                posts.append(post)
            if not is_more:
                return await self._social.build_views(user, posts), None
            before = entries[-1] if entries else before
        return await self._social.build_views(user, posts), before

    async def _load(self, user: UserId, entries: list[PostRef]) -> list[Post]:
        """Return the posts for `entries`, except deleted posts and posts of unfollowed authors."""
        if not entries:
            return []
        posts, followed = await asyncio.gather(
            self._posts.find_posts(entries),
            self._graph.find_followed(user, {post_ref.author for post_ref in entries}),
        )
        missing = [post_ref for post_ref in entries if post_ref not in posts]
        if missing:
            await self._timeline_rows.remove_entries(user, missing)
        visible = followed | {user}
        return [
            posts[post_ref]
            for post_ref in entries
            if post_ref in posts and post_ref.author in visible
        ]

    async def _list_entries(
        self, user: UserId, merged: dict[str, PostId], before: PostRef | None, size: int
    ) -> tuple[list[PostRef], bool]:
        """Return `(entries, is_more)`: the entries older than `before`, newest first.

        `is_more`: older entries may exist.
        """
        own, *others = await asyncio.gather(
            self._timeline_rows.list_entries(user, before, self._clock.time(), size),
            *(self._list_posts(author, before, first, size) for author, first in merged.items()),
        )
        sources: list[tuple[list[PostRef], bool]] = [own, *others]
        post_refs = {post_ref for entries, _ in sources for post_ref in entries}
        # If a source (the timeline or a merged author) has more entries, they are older than the
        # last one read from it. Older entries of all sources are left for the next page.
        ends = [entries[-1] for entries, is_more in sources if is_more and entries]
        if not ends and any(is_more for _, is_more in sources):
            return [], False
        lowest = max(ends) if ends else None
        entries = sorted(
            (post_ref for post_ref in post_refs if lowest is None or post_ref >= lowest),
            reverse=True,
        )
        return entries, bool(ends)

    async def _list_posts(
        self, author: str, before: PostRef | None, first: PostId, size: int
    ) -> tuple[list[PostRef], bool]:
        # Comparing the post id is enough: ids of different authors do not collide (80 random bits).
        upto = None if before is None else before.post
        ids = await self._posts.list_before(author, upto, first, size)
        return [PostRef(id_, author) for id_ in ids], len(ids) == size

    async def _list_merged(self, user: UserId) -> dict[str, PostId]:
        """Return `{author: first post to merge}` for up to `MERGED_MAX` of the followed authors."""
        authors = await self._merged.get_authors()
        if not authors:
            return {}
        followed = await self._graph.find_followed(user, authors.keys())
        oldest = self._merged.get_oldest()
        return {author: max(authors[author], oldest) for author in sorted(followed)[:MERGED_MAX]}
