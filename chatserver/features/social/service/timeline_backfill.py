"""Timeline backfill after a follow, and the range of posts that are merged on read.

When a user follows an author, entries for the author's newest `BACKFILL_POSTS_MAX` posts are added
to the user's timeline. If an author has too many followers, new posts are not written to timelines;
they are merged in when a timeline is read.

An author's merged posts begin with the first post that was not written to the followers' timelines.
"""

from __future__ import annotations

from typing import Final

from chatserver.domain.clock import Clock
from chatserver.features.social.model import PostId, PostRef, first_post_id, get_created_ms
from chatserver.features.social.settings import Timeline as Settings
from chatserver.features.social.warm.fanouts import Fanouts
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.timelines import SocialTimelines
from chatserver.warm.dynamo.shared_reads import SharedReads

BACKFILL_POSTS_MAX: Final = 20
MERGED_CACHE_S: Final = 5.0
DAY_S: Final = 86_400


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


class Backfill:
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
