"""Social graph use cases: profiles, posts and likes. `follows` has the follow use cases.

::

    post   ─► post, count and job, in one transaction ─► `timeline_fanout` ─► timelines, signals
    like   ─► room in the queue? ─► edge ─► post still exists? ─► queue ─► `counters`

Every authenticated user may see every other user's profile, followers and posts, unless one of the
two blocks the other. In that case the request fails with Forbidden.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError, NotFound
from chatserver.features.attachments.service.download_links import Link
from chatserver.features.social.hot import CountQueue
from chatserver.features.social.model import (
    GraphEdge,
    Info,
    Post,
    PostId,
    PostIds,
    PostRef,
    UserCounts,
    parse_content,
)
from chatserver.features.social.service.pictures import AVATAR, SocialPictures
from chatserver.features.social.warm.favorites import SocialFavorites
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.posts import NO_POST, SocialPosts
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.dynamo.paging import QueryPage, Token


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileView:
    """A user as seen by a viewer."""

    info: Info
    counts: UserCounts
    is_followed: bool  # True: the viewer follows the user
    is_following: bool  # True: the user follows the viewer


@dataclasses.dataclass(frozen=True, slots=True)
class PostView:
    """A post as seen by a viewer, with the author's name and the like count.

    `is_liked`: the viewer likes the post. `is_favorite`: the viewer has saved it.
    """

    post: Post
    name: str | None
    likes: int
    is_liked: bool
    is_favorite: bool


@dataclasses.dataclass(frozen=True, slots=True)
class FollowEntry:
    """A user in a list. `since_ms`: time of the follow or like (ms since 1970)."""

    user: str
    name: str | None
    since_ms: int


FollowPage = QueryPage[FollowEntry]


@attrs.define(eq=False, repr=False, kw_only=True)
class Social:
    """Use cases of the social graph.

    `wake_workers` wakes up the timeline workers. `can_see_profile(viewer, user)` returns whether
    the user is discoverable, is the viewer, or shares a chat with the viewer.
    """

    _profiles: SocialProfiles
    _graph: FollowEdges
    _posts: SocialPosts
    _likes: SocialLikes
    _favorites: SocialFavorites
    _queue: CountQueue
    _block_policy: BlockPolicy
    _pictures: SocialPictures
    _wake_workers: Callable[[], Awaitable[None]]
    _can_see_profile: Callable[[UserId, UserId], Awaitable[bool]]
    _clock: Clock
    _ids: PostIds = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ids = PostIds(self._clock)

    # Users

    async def get_profile(self, viewer: UserId, user: UserId) -> ProfileView:
        """Return a user's profile and counts, and whether viewer and user each follow the other.

        Strangers get only the id and the counts of a user who is not discoverable. A user is no
        stranger to those with whom they share a chat, and to those whom they follow.

        Raises:
            NotFound: there is no such user.
            Forbidden: one of the two blocks the other.
        """
        await self._check_access(viewer, user)
        (info, counts), mine, theirs = await asyncio.gather(
            self._profiles.find_profile(user),
            self._graph.find_followed(viewer, [user]),
            self._graph.find_followed(user, [viewer]),
        )
        profile = info or await self._profiles.make_info(user)
        if viewer not in theirs and not await self._can_see_profile(viewer, user):
            profile = dataclasses.replace(profile, name=None, about=None, avatar=None)
        return ProfileView(profile, counts, user in mine, viewer in theirs)

    async def list_followers(
        self, viewer: UserId, user: UserId, start: Token | None, limit: int
    ) -> FollowPage:
        """Return a page of a user's followers, sorted by id. Errors: see `get_profile`."""
        await self._check_access(viewer, user)
        page = await self._graph.list_followers(user, start, limit)
        return await self._build_follow_page(page)

    async def list_following(
        self, viewer: UserId, user: UserId, start: Token | None, limit: int
    ) -> FollowPage:
        """Return a page of users whom a user follows, sorted by id. Errors: see `get_profile`."""
        await self._check_access(viewer, user)
        page = await self._graph.list_following(user, start, limit)
        return await self._build_follow_page(page)

    async def _build_follow_page(self, page: QueryPage[GraphEdge]) -> FollowPage:
        infos = await self._profiles.list_infos([edge.user for edge in page.items])
        items = [
            FollowEntry(
                edge.user, infos[edge.user].name if edge.user in infos else None, edge.since_ms
            )
            for edge in page.items
        ]
        return QueryPage(items, page.next)

    # Posts

    async def create_post(self, author: UserId, content: str, image: str | None) -> PostView:
        """Create a post.

        Guarantees:
            Atomic: a stored post reaches the timelines even if this process crashes.

        Raises:
            BadRequest, TooLarge: the text or the picture is not allowed.
            NotFound: the author has no such picture.
            Unavailable: the post may have been created.
        """
        post = Post(
            self._ids.next(), author, parse_content(content), get_now_ms(self._clock), image
        )
        if image is not None:
            await self._pictures.add_use(author, image, post.id)
        await self._posts.create_post(post)
        await self._notify_workers()
        return (await self.build_views(author, [post]))[0]

    async def edit_post(
        self, author: UserId, id_: PostId, changes: Mapping[str, str | None]
    ) -> PostView:
        """Change a post's text or picture; timelines show the new version. Idempotent.

        Raises:
            NotFound: the author has no such post, or no such picture.
            BadRequest, TooLarge: the text is not allowed.
        """
        desired = dict(changes)
        if (content := desired.get("content")) is not None:
            desired["content"] = parse_content(content)
        if (image := desired.get("image")) is not None:
            await self._posts.get_post(author, id_)
            await self._pictures.add_use(author, image, id_)
        before, after = await self._posts.edit_post(author, id_, desired, get_now_ms(self._clock))
        if before.image != after.image:
            await self._pictures.remove_use(before.image, id_)
        return (await self.build_views(author, [after]))[0]

    async def delete_post(self, author: UserId, id_: PostId) -> None:
        """Delete a post. On return, the post is invisible. Its likes are removed asynchronously.

        Raises:
            NotFound: the author has no such post.
            Unavailable: the post may have been deleted.
        """
        post = await self._posts.get_post(author, id_)
        if not await self._posts.delete_post(author, id_, get_now_ms(self._clock)):
            raise NotFound(NO_POST)
        await self._pictures.remove_use(post.image, id_)
        await self._notify_workers()

    async def get_post(self, viewer: UserId, author: UserId, id_: PostId) -> PostView:
        """Return a post.

        Raises:
            NotFound: there is no such post.
            Forbidden: one of the two blocks the other.
        """
        await self._check_not_blocked(viewer, author)
        return (await self.build_views(viewer, [await self._posts.get_post(author, id_)]))[0]

    async def list_posts(
        self, viewer: UserId, author: UserId, start: Token | None, limit: int
    ) -> QueryPage[PostView]:
        """Return a page of a user's posts, newest first. Errors: see `get_profile`."""
        await self._check_access(viewer, author)
        page = await self._posts.list_posts(author, start, limit)
        return QueryPage(await self.build_views(viewer, page.items), page.next)

    async def build_views(self, viewer: UserId, posts: Sequence[Post]) -> list[PostView]:
        """Return posts as seen by a viewer, in the same order. Cost: four calls per 100 posts."""
        if not posts:
            return []
        ids = [post.id for post in posts]
        refs = {post.id: PostRef(post.id, post.author) for post in posts}
        infos, counts, liked, saved = await asyncio.gather(
            self._profiles.list_infos({post.author for post in posts}),
            self._likes.get_counts(ids),
            self._likes.find_liked(viewer, ids),
            self._favorites.find_saved(viewer, refs.values()),
        )
        return [
            PostView(
                post,
                infos[post.author].name if post.author in infos else None,
                counts[post.id],
                post.id in liked,
                refs[post.id] in saved,
            )
            for post in posts
        ]

    # Pictures

    async def put_avatar(self, user: UserId, file: str | None) -> None:
        """Set or remove a user's avatar. Idempotent.

        Raises:
            NotFound: the user has no such picture.
            BadRequest: the file is not a picture.
        """
        await self._ensure_profile(user)
        if file is not None:
            await self._pictures.add_use(user, file, AVATAR)
        before = await self._profiles.put_avatar(user, file)
        if before != file:
            await self._pictures.remove_use(before, AVATAR)

    async def get_avatar_link(self, viewer: UserId, user: UserId, *, is_thumb: bool) -> Link:
        """Return a URL for a user's avatar. Errors: see `get_profile`; NotFound if not set."""
        profile = await self.get_profile(viewer, user)
        return await self._pictures.get_link(profile.info.avatar, is_thumb=is_thumb)

    async def get_image_link(
        self, viewer: UserId, author: UserId, id_: PostId, *, is_thumb: bool
    ) -> Link:
        """Return a URL for a post's picture. Errors: see `get_post`; NotFound if there is none."""
        await self._check_not_blocked(viewer, author)
        post = await self._posts.get_post(author, id_)
        return await self._pictures.get_link(post.image, is_thumb=is_thumb)

    # Likes

    async def like(self, user: UserId, post_ref: PostRef) -> None:
        """Like a post. The count is updated within `FLUSH_S`.

        Guarantees:
            Idempotent. If the count change cannot be queued, the like is rolled back. After a crash
            between writing the like and queueing the change, the count is off by one until
            `chatserver audit social --repair` runs.

        Raises:
            NotFound: there is no such post.
            Forbidden: one of the two blocks the other.
            Overloaded: the queue of count changes is full.
            Unavailable: the like may or may not have been written.
        """
        await self._check_not_blocked(user, UserId(post_ref.author))
        await self._posts.get_post(post_ref.author, post_ref.post)
        await self._queue.check_capacity(post_ref.post)
        if not await self._likes.like(user, post_ref, get_now_ms(self._clock)):
            return
        try:
            # Check again that the post exists: a concurrent deletion may have missed this like.
            await self._posts.get_post(post_ref.author, post_ref.post)
            await self._queue.add("likes", post_ref.post, 1)
        except ChatError:
            await self._likes.unlike(user, post_ref)
            raise

    async def unlike(self, user: UserId, post_ref: PostRef) -> None:
        """Remove a like, even from a deleted post. For guarantees, see `like`.

        Raises:
            Overloaded: the queue of count changes is full.
            Unavailable: the like may or may not have been removed.
        """
        await self._queue.check_capacity(post_ref.post)
        if not await self._likes.unlike(user, post_ref):
            return
        try:
            await self._queue.add("likes", post_ref.post, -1)
        except ChatError:
            await self._likes.like(user, post_ref, get_now_ms(self._clock))
            raise

    async def list_likes(
        self, viewer: UserId, post_ref: PostRef, start: Token | None, limit: int
    ) -> FollowPage:
        """Return a page of the users who like a post, sorted by id. Errors: see `get_post`."""
        await self._check_not_blocked(viewer, UserId(post_ref.author))
        await self._posts.get_post(post_ref.author, post_ref.post)
        page = await self._likes.list_likes(post_ref.post, start, limit)
        return await self._build_follow_page(page)

    # Shared checks

    async def _check_access(self, viewer: UserId, user: UserId) -> None:
        await self._check_not_blocked(viewer, user)
        if viewer != user:
            await self._ensure_profile(user)

    async def _check_not_blocked(self, viewer: UserId, user: UserId) -> None:
        if viewer != user:
            await self._block_policy.require_unblocked(viewer, [user])

    async def _ensure_profile(self, user: UserId) -> None:
        info, _ = await self._profiles.find_profile(user)
        if info is None:
            await self._profiles.make_info(user)

    async def _notify_workers(self) -> None:
        try:
            await self._wake_workers()
        except ChatError:
            return  # the workers also poll for jobs
