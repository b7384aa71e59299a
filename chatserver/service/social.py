"""The social graph: what users show, whom they follow, what they post and like.

::

    follow ─► neither blocks the other ─► both edges and both counts, in one transaction
    post   ─► post, count and job, in one transaction ─► workers.timeline ─► rows, signals
    like   ─► room in the queue? ─► edge ─► is the post still there? ─► queue ─► workers.counters

Everybody who is logged in may see everybody's profile, followers and posts, but for those with whom
he is apart, because one of the two blocks the other: they are told so.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.domain.social import (
    Counts,
    Edge,
    Info,
    Liking,
    Line,
    Post,
    PostId,
    PostIds,
    check_other,
    parse_content,
)
from chatserver.errors import ChatError, NotFound
from chatserver.service.socialfiles import AVATAR

NO_POST = "post: there is no such post"
Start = Mapping[str, str | int]  # where a page starts; opaque here


class Profiles(Protocol):
    """What users show, and counts."""

    async def find_profile(self, user: str) -> tuple[Info | None, Counts]: ...

    async def make_info(self, user: str) -> Info: ...

    async def list_infos(self, users: Collection[str]) -> Mapping[str, Info]: ...

    async def put_avatar(self, user: str, avatar: str | None) -> str | None: ...


class Graph(Protocol):
    """Who follows whom. Of its pages, `items` and `next` are used."""

    async def follow(self, user: str, other: str, now_ms: int) -> bool: ...

    async def unfollow(self, user: str, other: str) -> bool: ...

    async def find_followed(self, user: str, others: Collection[str]) -> set[str]: ...

    async def list_followers(self, user: str, start: Any, limit: int) -> Any: ...

    async def list_following(self, user: str, start: Any, limit: int) -> Any: ...


class Posts(Protocol):
    """Posts."""

    async def create_post(self, post: Post) -> None: ...

    async def edit_post(
        self, author: str, id_: PostId, changes: dict[str, str | None], now_ms: int
    ) -> tuple[Post, Post]: ...

    async def delete_post(self, author: str, id_: PostId, now_ms: int) -> bool: ...

    async def get_post(self, author: str, id_: PostId) -> Post: ...

    async def list_posts(self, author: str, start: Any, limit: int) -> Any: ...


class Likes(Protocol):
    """Who likes what, and how many."""

    async def like(self, user: str, line: Line, now_ms: int) -> bool: ...

    async def unlike(self, user: str, line: Line) -> bool: ...

    async def find_liked(self, user: str, posts: Collection[PostId]) -> set[PostId]: ...

    async def list_likes(self, post: PostId, start: Any, limit: int) -> Any: ...

    async def get_counts(self, posts: Collection[PostId]) -> Mapping[PostId, int]: ...


class Queue(Protocol):
    """Likes on their way into counts."""

    async def check_room(self, post: PostId) -> None: ...

    async def add(self, post: PostId, change: Liking) -> None: ...


class Apart(Protocol):
    """Who is apart from whom."""

    async def require_together(self, user: UserId, others: Collection[UserId]) -> None: ...


class Files(Protocol):
    """Pictures of users and posts."""

    async def take(self, owner: UserId, file: str, use: str) -> None: ...

    async def release(self, file: str | None, use: str) -> None: ...

    async def get_link(self, file: str | None, *, is_thumb: bool) -> Any: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The warm tier's part."""

    profiles: Profiles
    graph: Graph
    posts: Posts
    likes: Likes


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A user as another one, or he himself, sees him."""

    info: Info
    counts: Counts
    is_followed: bool  # by the one who looks
    is_following: bool  # the one who looks


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A post as somebody sees it: with its author's name, how many like it, and whether he does."""

    post: Post
    name: str | None
    likes: int
    is_liked: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a list, since when he is in it (ms), and what he is called."""

    user: str
    name: str | None
    since_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class People:
    """A page of people, and where the next one starts."""

    items: list[Person]
    next: Start | None


@dataclasses.dataclass(frozen=True, slots=True)
class Seens:
    """A page of posts, and where the next one starts."""

    items: list[Seen]
    next: Start | None


class Social:
    """The use cases. `announce`: tells workers that there is a job."""

    def __init__(
        self,
        rows: Rows,
        queue: Queue,
        apart: Apart,
        files: Files,
        announce: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._queue = queue
        self._apart = apart
        self._files = files
        self._announce = announce
        self._clock = clock
        self._ids = PostIds(clock)

    # people

    async def get_profile(self, viewer: UserId, user: UserId) -> Profile:
        """Return what a user shows, with counts, and who of the two follows whom.

        Raises:
            NotFound: there is no such user.
            Forbidden: one of the two blocks the other.
        """
        await self._require(viewer, user)
        graph = self._rows.graph
        (info, counts), mine, theirs = await asyncio.gather(
            self._rows.profiles.find_profile(user),
            graph.find_followed(viewer, [user]),
            graph.find_followed(user, [viewer]),
        )
        shown = info or await self._rows.profiles.make_info(user)
        return Profile(shown, counts, user in mine, viewer in theirs)

    async def follow(self, user: UserId, other: UserId) -> None:
        """Let a user follow another one.

        Guarantees:
            Idempotent. Both edges and both counts are written, or nothing is.

        Raises:
            BadRequest: the two are one.
            NotFound: there is no such user.
            Forbidden: one of the two blocks the other.
            Conflict: the user follows as many as he may.
            Unavailable: it may be done, or not.
        """
        check_other(user, other)
        await self._require_user(other)
        await self._rows.graph.follow(user, other, self._now_ms())

    async def unfollow(self, user: UserId, other: UserId) -> None:
        """Let a user no longer follow another one. Idempotent; posts stay out of his sight."""
        check_other(user, other)
        await self._rows.graph.unfollow(user, other)

    async def list_followers(
        self, viewer: UserId, user: UserId, start: Start | None, limit: int
    ) -> People:
        """Return a page of those who follow a user, by id. Raises as `get_profile`."""
        await self._require(viewer, user)
        return await self._people(await self._rows.graph.list_followers(user, start, limit))

    async def list_following(
        self, viewer: UserId, user: UserId, start: Start | None, limit: int
    ) -> People:
        """Return a page of those whom a user follows, by id. Raises as `get_profile`."""
        await self._require(viewer, user)
        return await self._people(await self._rows.graph.list_following(user, start, limit))

    async def _people(self, page: Any) -> People:
        edges: Sequence[Edge] = page.items
        infos = await self._rows.profiles.list_infos([edge.user for edge in edges])
        items = [
            Person(edge.user, infos[edge.user].name if edge.user in infos else None, edge.since_ms)
            for edge in edges
        ]
        return People(items, page.next)

    # posts

    async def create_post(self, author: UserId, content: str, image: str | None) -> Seen:
        """Post something.

        Guarantees:
            Whole or not at all: whoever dies meanwhile, what is stored is brought to timelines.

        Raises:
            BadRequest, TooLarge: the text, or the picture, may not be posted.
            NotFound: there is no such picture of the author's.
            Unavailable: it may be posted.
        """
        post = Post(self._ids.next(), author, parse_content(content), self._now_ms(), image)
        if image is not None:
            await self._files.take(author, image, post.id)
        await self._rows.posts.create_post(post)
        await self._tell()
        return (await self.see(author, [post]))[0]

    async def edit_post(
        self, author: UserId, id_: PostId, changes: Mapping[str, str | None]
    ) -> Seen:
        """Change the text or the picture of a post; timelines show it as it is then. Idempotent.

        Raises:
            NotFound: the author has no such post, or no such picture.
            BadRequest, TooLarge: the text may not be posted.
        """
        wanted = dict(changes)
        if (content := wanted.get("content")) is not None:
            wanted["content"] = parse_content(content)
        image = wanted.get("image")
        if image is not None:
            await self._rows.posts.get_post(author, id_)
            await self._files.take(author, image, id_)
        before, after = await self._rows.posts.edit_post(author, id_, wanted, self._now_ms())
        if before.image != after.image:
            await self._files.release(before.image, id_)
        return (await self.see(author, [after]))[0]

    async def delete_post(self, author: UserId, id_: PostId) -> None:
        """Delete a post. From the return on nobody sees it; its likes go a little later.

        Raises:
            NotFound: the author has no such post.
            Unavailable: it may be deleted.
        """
        post = await self._rows.posts.get_post(author, id_)
        if not await self._rows.posts.delete_post(author, id_, self._now_ms()):
            raise NotFound(NO_POST)
        await self._files.release(post.image, id_)
        await self._tell()

    async def get_post(self, viewer: UserId, author: UserId, id_: PostId) -> Seen:
        """Return a post.

        Raises:
            NotFound: there is no such post.
            Forbidden: one of the two blocks the other.
        """
        await self._require_together(viewer, author)
        return (await self.see(viewer, [await self._rows.posts.get_post(author, id_)]))[0]

    async def list_posts(
        self, viewer: UserId, author: UserId, start: Start | None, limit: int
    ) -> Seens:
        """Return a page of a user's posts, newest first. Raises as `get_profile`."""
        await self._require(viewer, author)
        page = await self._rows.posts.list_posts(author, start, limit)
        return Seens(await self.see(viewer, page.items), page.next)

    async def see(self, viewer: UserId, posts: Sequence[Post]) -> list[Seen]:
        """Return posts as somebody sees them, in their order. Three calls for up to 100."""
        if not posts:
            return []
        ids = [post.id for post in posts]
        infos, counts, liked = await asyncio.gather(
            self._rows.profiles.list_infos({post.author for post in posts}),
            self._rows.likes.get_counts(ids),
            self._rows.likes.find_liked(viewer, ids),
        )
        return [
            Seen(
                post,
                infos[post.author].name if post.author in infos else None,
                counts[post.id],
                post.id in liked,
            )
            for post in posts
        ]

    # pictures

    async def put_avatar(self, user: UserId, file: str | None) -> None:
        """Set the picture of a user, or take it away. Idempotent.

        Raises:
            NotFound: there is no such picture of the user's.
            BadRequest: it is no picture.
        """
        await self._require_user(user)
        if file is not None:
            await self._files.take(user, file, AVATAR)
        before = await self._rows.profiles.put_avatar(user, file)
        if before != file:
            await self._files.release(before, AVATAR)

    async def get_avatar_link(self, viewer: UserId, user: UserId, *, is_thumb: bool) -> Any:
        """Return an address of a user's picture. Raises as `get_profile`, and if there is none."""
        profile = await self.get_profile(viewer, user)
        return await self._files.get_link(profile.info.avatar, is_thumb=is_thumb)

    async def get_image_link(
        self, viewer: UserId, author: UserId, id_: PostId, *, is_thumb: bool
    ) -> Any:
        """Return an address of a post's picture. Raises as `get_post`, and if there is none."""
        await self._require_together(viewer, author)
        post = await self._rows.posts.get_post(author, id_)
        return await self._files.get_link(post.image, is_thumb=is_thumb)

    # likes

    async def like(self, user: UserId, line: Line) -> None:
        """Let a user like a post. The count follows within `counters.flush_s`.

        Guarantees:
            Idempotent. If the like cannot be counted, because Redis is away, it is taken back; a
            process that dies right then leaves a count that is off by one until it is audited.

        Raises:
            NotFound: there is no such post.
            Forbidden: one of the two blocks the other.
            Overloaded: too many likes wait to be counted.
            Unavailable: it may be done, or not.
        """
        await self._require_together(user, UserId(line.author))
        await self._rows.posts.get_post(line.author, line.post)
        await self._queue.check_room(line.post)
        if not await self._rows.likes.like(user, line, self._now_ms()):
            return
        try:
            # Who deletes a post takes away the likes that he finds then: not this one, perhaps.
            await self._rows.posts.get_post(line.author, line.post)
            await self._queue.add(line.post, 1)
        except ChatError:
            await self._rows.likes.unlike(user, line)
            raise

    async def unlike(self, user: UserId, line: Line) -> None:
        """Let a user no longer like a post; of one that is gone, too. As `like`."""
        await self._queue.check_room(line.post)
        if not await self._rows.likes.unlike(user, line):
            return
        try:
            await self._queue.add(line.post, -1)
        except ChatError:
            await self._rows.likes.like(user, line, self._now_ms())
            raise

    async def list_likes(
        self, viewer: UserId, line: Line, start: Start | None, limit: int
    ) -> People:
        """Return a page of those who like a post, by id. Raises as `get_post`."""
        await self._require_together(viewer, UserId(line.author))
        await self._rows.posts.get_post(line.author, line.post)
        return await self._people(await self._rows.likes.list_likes(line.post, start, limit))

    # what they share

    async def _require(self, viewer: UserId, user: UserId) -> None:
        await self._require_together(viewer, user)
        if viewer != user:
            await self._require_user(user)

    async def _require_together(self, viewer: UserId, user: UserId) -> None:
        if viewer != user:
            await self._apart.require_together(viewer, [user])

    async def _require_user(self, user: UserId) -> None:
        info, _ = await self._rows.profiles.find_profile(user)
        if info is None:
            await self._rows.profiles.make_info(user)

    async def _tell(self) -> None:
        try:
            await self._announce()
        except ChatError:
            return  # workers look by themselves, a little later

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)
