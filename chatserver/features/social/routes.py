"""HTTP routes for profiles, follows, posts, likes and timelines."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.idempotency import read_key
from chatserver.api.paging import Page, PageOf, PageQuery
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.routes import FileLink, NewAttachment, Upload
from chatserver.features.attachments.service.attachment_resolver import build_attachment
from chatserver.features.attachments.service.download_links import Link
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.model import (
    POST_CHARS_MAX,
    POST_PATTERN,
    PostId,
    PostRef,
    parse_post_id,
)
from chatserver.features.social.service.pictures import get_picture_space
from chatserver.features.social.service.social import FollowPage, PostView
from chatserver.protocol import frames

READ, WRITE = user_or_key("social:read"), user_or_key("social:write")

Thumb = Annotated[
    int, QueryParameter(ge=0, le=1, required=False, description="1: the thumbnail, if there is one")
]


class UserProfile(msgspec.Struct, frozen=True):
    """A user's public profile. `avatar` is the id of a picture.

    `followed`: the caller follows this user. `follows`: this user follows the caller.
    """

    user: str
    name: str | None
    about: str | None
    avatar: str | None
    followers: int
    following: int
    posts: int
    followed: bool
    follows: bool


class Follower(msgspec.Struct, frozen=True):
    """A user in a list. `since`: time of the follow or like, in milliseconds since 1970."""

    user: str
    name: str | None
    since: int


class Picture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An uploaded picture, by its id."""

    image: frames.Id


def _build_follower_page(page: PageQuery, found: FollowPage) -> Page[Follower]:
    items = [Follower(edge.user, edge.name, edge.since_ms) for edge in found.items]
    return page.build(items, found.next)


def build_file_link(link: Link) -> FileLink:
    return FileLink(link.url, link.expires_s, build_attachment(link.file), link.file.is_processed)


def build_social_people_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_profile_routes(container),
        *_build_picture_routes(container),
        *_build_edge_routes(container),
        *_build_follow_routes(container),
    ]


def _build_profile_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}", opt={"rule": READ})
    async def get_profile(user: PathId, actor: Actor) -> UserProfile:
        """Get a user's public profile, with follower, following, and post counts."""
        profile = await container.get(SocialContainer).social.get_profile(actor, UserId(user))
        info, counts = profile.info, profile.counts
        return UserProfile(
            user=info.user,
            name=info.name,
            about=info.about,
            avatar=info.avatar,
            followers=counts.followers,
            following=counts.following,
            posts=counts.posts,
            followed=profile.is_followed,
            follows=profile.is_following,
        )

    return [get_profile]


def _build_picture_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/avatar", opt={"rule": READ})
    async def get_avatar(user: PathId, actor: Actor, thumb: Thumb = 0) -> FileLink:
        """Get a URL for a user's avatar."""
        graph = container.get(SocialContainer).social
        return build_file_link(
            await graph.get_avatar_link(actor, UserId(user), is_thumb=thumb == 1)
        )

    @put("/v1/me/avatar", status_code=204, opt={"rule": WRITE, "errors": (409,)})
    async def put_avatar(data: JSONBody[Picture], actor: Actor) -> None:
        """Set the caller's avatar to a picture uploaded with `POST /v1/me/attachments`."""
        await container.get(SocialContainer).social.put_avatar(actor, data.image)

    @delete("/v1/me/avatar", status_code=204, opt={"rule": WRITE})
    async def delete_avatar(actor: Actor) -> None:
        """Remove the caller's avatar."""
        await container.get(SocialContainer).social.put_avatar(actor, None)

    # The response is not stored for a retry with the same idempotency key, because its upload form
    # may have expired before the retry.
    @post("/v1/me/attachments", opt={"rule": WRITE, "accepts_key": True})
    async def begin_picture(
        data: JSONBody[NewAttachment], actor: Actor, request: Request[Any, Any, Any]
    ) -> Upload:
        """Start uploading a picture for an avatar or a post.

        The client completes the upload in the same way as for a chat attachment.
        """
        upload = await container.get(AttachmentContainer).uploads.begin(
            owner=actor,
            chat=get_picture_space(actor),
            name=data.name,
            type_=data.type,
            size=data.size,
            sha256=data.sha256,
            key=read_key(request),
        )
        if upload.form is None:
            return Upload(upload.file.id, None, {}, 0)
        return Upload(upload.file.id, upload.form.url, upload.form.fields, upload.expires_s)

    return [get_avatar, put_avatar, delete_avatar, begin_picture]


def _build_edge_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/followers", opt={"rule": READ})
    async def list_followers(user: PathId, actor: Actor, page: PageOf) -> Page[Follower]:
        """List the followers of a user, sorted by id."""
        social = container.get(SocialContainer).social
        followers = await social.list_followers(actor, UserId(user), page.start, page.limit)
        return _build_follower_page(page, followers)

    @get("/v1/users/{user:str}/following", opt={"rule": READ})
    async def list_following(user: PathId, actor: Actor, page: PageOf) -> Page[Follower]:
        """List the users that a user follows, sorted by id."""
        social = container.get(SocialContainer).social
        following = await social.list_following(actor, UserId(user), page.start, page.limit)
        return _build_follower_page(page, following)

    return [list_followers, list_following]


def _build_follow_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @put("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE, "errors": (409,)})
    async def follow(user: PathId, actor: Actor) -> None:
        """Follow a user: their newest and future posts appear in the caller's timeline."""
        await container.get(SocialContainer).follows.follow(actor, UserId(user))

    @delete("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE})
    async def unfollow(user: PathId, actor: Actor) -> None:
        """Unfollow a user."""
        await container.get(SocialContainer).follows.unfollow(actor, UserId(user))

    return [follow, unfollow]


PathPost = Annotated[str, PathParameter(pattern=POST_PATTERN)]
Content = Annotated[str, Meta(min_length=1, max_length=POST_CHARS_MAX)]


class PostInfo(msgspec.Struct, frozen=True):
    """A post. `name` is the author's name, `image` the id of a picture. Times in ms since 1970.

    `likes` is the number of likes, updated with a short delay. `liked`: the caller likes the post.
    `favorite`: the caller saved the post.
    """

    id: str
    user: str
    name: str | None
    content: str
    image: str | None
    created: int
    edited: int | None
    likes: int
    liked: bool
    favorite: bool


class NewPost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new post. `image` is the id of a picture uploaded with `POST /v1/me/attachments`."""

    content: Content
    image: frames.Id | None = None


class PostChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a post to change; a null `image` removes the picture."""

    content: Content | UnsetType = UNSET
    image: frames.Id | UnsetType | None = UNSET


def build_post_info(view: PostView) -> PostInfo:
    post = view.post
    return PostInfo(
        id=post.id,
        user=post.author,
        name=view.name,
        content=post.content,
        image=post.image,
        created=post.created_ms,
        edited=post.edited_ms,
        likes=view.likes,
        liked=view.is_liked,
        favorite=view.is_favorite,
    )


def build_social_posts_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the routes for posts, likes and timelines."""
    return [
        *_build_post_routes(container),
        *_build_own_post_routes(container),
        *_build_like_routes(container),
        *_build_timeline_routes(container),
    ]


def _build_post_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    graph = container.get(SocialContainer).social

    @get("/v1/users/{user:str}/posts", opt={"rule": READ})
    async def list_posts(user: PathId, actor: Actor, page: PageOf) -> Page[PostInfo]:
        """List the posts of a user, newest first."""
        posts = await graph.list_posts(actor, UserId(user), page.start, page.limit)
        return page.build(map(build_post_info, posts.items), posts.next)

    @get("/v1/users/{user:str}/posts/{post:str}", opt={"rule": READ})
    async def get_post(user: PathId, post: PathPost, actor: Actor) -> PostInfo:
        """Get a post."""
        return build_post_info(await graph.get_post(actor, UserId(user), parse_post_id(post)))

    @get("/v1/users/{user:str}/posts/{post:str}/image", opt={"rule": READ})
    async def get_post_image(
        user: PathId, post: PathPost, actor: Actor, thumb: Thumb = 0
    ) -> FileLink:
        """Get a URL for a post's picture."""
        link = await graph.get_image_link(
            actor, UserId(user), parse_post_id(post), is_thumb=thumb == 1
        )
        return build_file_link(link)

    return [list_posts, get_post, get_post_image]


def _build_own_post_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    graph = container.get(SocialContainer).social

    @post("/v1/me/posts", opt={"rule": WRITE, "creates": True})
    async def create_post(data: JSONBody[NewPost], actor: Actor) -> PostInfo:
        """Create a post; it appears in the timelines of the caller's followers."""
        return build_post_info(await graph.create_post(actor, data.content, data.image))

    @patch("/v1/me/posts/{post:str}", opt={"rule": WRITE, "errors": (409,)})
    async def edit_post(post: PathPost, data: JSONBody[PostChanges], actor: Actor) -> PostInfo:
        """Edit a post of the caller; timelines show the new version."""
        fields = {"content": data.content, "image": data.image}
        changes = {name: text for name, text in fields.items() if not isinstance(text, UnsetType)}
        if not changes:
            return build_post_info(await graph.get_post(actor, actor, parse_post_id(post)))
        return build_post_info(await graph.edit_post(actor, parse_post_id(post), changes))

    @delete("/v1/me/posts/{post:str}", status_code=204, opt={"rule": WRITE})
    async def delete_post(post: PathPost, actor: Actor) -> None:
        """Delete a post of the caller, with its likes."""
        await graph.delete_post(actor, parse_post_id(post))

    return [create_post, edit_post, delete_post]


def _build_like_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    graph = container.get(SocialContainer).social

    @get("/v1/users/{user:str}/posts/{post:str}/likes", opt={"rule": READ})
    async def list_likes(
        user: PathId, post: PathPost, actor: Actor, page: PageOf
    ) -> Page[Follower]:
        """List the users who like a post, sorted by id."""
        post_ref = PostRef(parse_post_id(post), user)
        likes = await graph.list_likes(actor, post_ref, page.start, page.limit)
        return _build_follower_page(page, likes)

    @put("/v1/users/{user:str}/posts/{post:str}/like", status_code=204, opt={"rule": WRITE})
    async def like(user: PathId, post: PathPost, actor: Actor) -> None:
        """Like a post. The count is updated within seconds."""
        await graph.like(actor, PostRef(parse_post_id(post), user))

    @delete("/v1/users/{user:str}/posts/{post:str}/like", status_code=204, opt={"rule": WRITE})
    async def unlike(user: PathId, post: PathPost, actor: Actor) -> None:
        """Remove the caller's like from a post."""
        await graph.unlike(actor, PostRef(parse_post_id(post), user))

    return [list_likes, like, unlike]


def _build_timeline_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/timeline", opt={"rule": READ})
    async def read_timeline(user: PathId, actor: Actor, page: PageOf) -> Page[PostInfo]:
        """Read the caller's timeline: posts of followed users and own posts, newest first."""
        if user != actor:
            raise NotFound("timeline: you can read only your own timeline")
        start = page.open(list[str])
        before = None if start is None else PostRef(PostId(start[0]), start[1])
        timelines = container.get(SocialContainer).timelines
        posts, last = await timelines.read(actor, before, page.limit)
        return page.build(map(build_post_info, posts), last and [last.post, last.author])

    return [read_timeline]
