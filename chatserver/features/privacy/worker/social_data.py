"""Export and erasure of a user's social data.

Erasure uses the normal operations of the social graph, which update all counts. After a crash the
graph is consistent, and a retry completes the erasure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import get_now_ms
from chatserver.domain.ids import UserId
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.model import Line
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.model import Post, PostRef
from chatserver.features.social.warm.likes import parse_link
from chatserver.features.social.warm.social_items import LIKED_PREFIX
from chatserver.telemetry.failpoints import failpoint

TABLE, QUEUE = "DynamoDB social", "DynamoDB social, Redis"
POSTS_PAGE = 100


class SocialData:
    """Social data of one user."""

    def __init__(self, container: StorageContainer, user: UserId) -> None:
        self._container = container
        self._social = container.get(SocialContainer)
        self._user = user

    # Erasure

    async def erase(self) -> list[Line]:
        """Erase all social data of the user; return the receipt lines. Idempotent.

        Raises:
            Unavailable: a data store is unavailable; retry.
        """
        edges = await self._delete_follows()
        posts = await self._delete_posts()
        likes = await self._delete_likes()
        favorites = await self._social.favorite_rows.remove_all(self._user)
        lines = await self._social.timeline_rows.remove_all(self._user)
        await self._social.fanouts.remove_author(self._user)
        rows = await self._social.profiles.remove(self._user)
        await self._social.queue.remove(self._user)
        return [
            (TABLE, "followed users and followers", edges),
            (TABLE, "posts", posts),
            (QUEUE, "likes", likes),
            (TABLE, "favorites", favorites),
            (TABLE, "timeline rows", lines),
            (TABLE, "profile and counts", rows),
        ]

    async def _delete_follows(self) -> int:
        graph, follows, count = self._social.graph, self._social.follows, 0
        async for page in graph.iter_edges(self._user, is_follower=False):
            for edge in page:
                count += await follows.unfollow(self._user, UserId(edge.user))
        failpoint("erasure.in_social")
        async for page in graph.iter_edges(self._user, is_follower=True):
            for edge in page:
                count += await follows.unfollow(UserId(edge.user), self._user)
        return count

    async def _delete_posts(self) -> int:
        count, now_ms = 0, get_now_ms(self._container.clock)
        async for page in self._iter_posts():
            for post in page:
                count += await self._social.posts.delete_post(self._user, post.id, now_ms)
        return count

    async def _delete_likes(self) -> int:
        queue, count = self._social.queue, 0
        for name in await self._container.get(PrivacyContainer).rows.list_names(
            self._user, LIKED_PREFIX
        ):
            post_ref = parse_link(name)
            await queue.check_capacity(post_ref.post)
            if await self._social.likes.unlike(self._user, post_ref):
                await queue.add("likes", post_ref.post, -1)
                count += 1
        return count

    # Export

    async def get_profile(self) -> dict[str, Any]:
        """Return the user's avatar and profile counts."""
        info, counts = await self._social.profiles.find_profile(self._user)
        return {
            "avatar": None if info is None else info.avatar,
            "followers": counts.followers,
            "following": counts.following,
            "posts": counts.posts,
        }

    async def iter_edges(self, *, is_follower: bool) -> AsyncIterator[list[Any]]:
        """Yield the followed users, or the followers, page by page."""
        graph = self._social.graph
        async for page in graph.iter_edges(self._user, is_follower=is_follower):
            yield [{"user": edge.user, "since": edge.since_ms} for edge in page]

    async def iter_posts(self) -> AsyncIterator[list[Any]]:
        """Yield the user's posts, page by page."""
        async for page in self._iter_posts():
            yield [
                {
                    "id": post.id,
                    "content": post.content,
                    "image": post.image,
                    "created": post.created_ms,
                    "edited": post.edited_ms,
                }
                for post in page
            ]

    async def iter_likes(self) -> AsyncIterator[list[Any]]:
        """Yield the posts that the user likes."""
        names = await self._container.get(PrivacyContainer).rows.list_names(
            self._user, LIKED_PREFIX
        )
        lines = [parse_link(name) for name in names]
        yield [{"post": post_ref.post, "of": post_ref.author} for post_ref in lines]

    async def iter_favorites(self) -> AsyncIterator[list[Any]]:
        """Yield the saved posts and messages, page by page."""
        async for page in self._social.favorite_rows.iter_all(self._user):
            yield [
                {"post": favorite.ref.post, "of": favorite.ref.author, "saved": favorite.saved_ms}
                if isinstance(favorite.ref, PostRef)
                else {
                    "chat": favorite.ref.chat,
                    "seq": favorite.ref.seq,
                    "saved": favorite.saved_ms,
                }
                for favorite in page
            ]

    async def _iter_posts(self) -> AsyncIterator[list[Post]]:
        start = None
        while True:
            page = await self._social.posts.list_posts(self._user, start, POSTS_PAGE)
            if page.items:
                yield page.items
            start = page.next
            if start is None:
                return
