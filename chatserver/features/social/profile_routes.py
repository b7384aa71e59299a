"""HTTP routes of profiles and follows, readable by every user of the installation."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.container import ApiContainer
from chatserver.api.idempotency import read_key
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId
from chatserver.api.security import Actor, user_or_key
from chatserver.domain.ids import UserId
from chatserver.features.attachments.routes import FileLink, NewAttachment, Upload
from chatserver.features.attachments.service import Link, attachment_of
from chatserver.features.social.pictures import space_of
from chatserver.features.social.service import FollowPage
from chatserver.protocol import frames

READ, WRITE = user_or_key("social:read"), user_or_key("social:write")
Start = dict[str, str | int]

Thumb = Annotated[
    int, QueryParameter(ge=0, le=1, required=False, description="1: the thumbnail instead")
]


class UserProfile(msgspec.Struct, frozen=True):
    """A user. `avatar`: id of a picture; `followed` by the caller; `follows` the caller."""

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
    """A user in a list, and since when, in milliseconds since 1970."""

    user: str
    name: str | None
    since: int


class Picture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An uploaded picture, by its id."""

    image: frames.Id


def page_of_people(parts: ApiContainer, place: str, found: FollowPage) -> Page[Follower]:
    """Encode a page of users."""
    items = [Follower(each.user, each.name, each.since_ms) for each in found.items]
    following = None if found.next is None else parts.cursors.seal(place, dict(found.next))
    return Page(items, following)


def link_of(link: Link) -> FileLink:
    """Encode a file link."""
    return FileLink(link.url, link.expires_s, attachment_of(link.file), link.file.is_looked_at)


def social_people_routes(parts: ApiContainer) -> list[HTTPRouteHandler]:
    """Return the routes of profiles and follow edges."""
    return [*_profiles(parts), *_pictures(parts), *_edges(parts), *_following(parts)]


def _profiles(parts: ApiContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}", opt={"rule": READ})
    async def get_profile(user: PathId, actor: Actor) -> UserProfile:
        """Get a user's public profile with the numbers of followers, followed users and posts."""
        found = await parts.social.graph.get_profile(actor, UserId(user))
        info, counts = found.info, found.counts
        return UserProfile(
            user=info.user,
            name=info.name,
            about=info.about,
            avatar=info.avatar,
            followers=counts.followers,
            following=counts.following,
            posts=counts.posts,
            followed=found.is_followed,
            follows=found.is_following,
        )

    return [get_profile]


def _pictures(parts: ApiContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/avatar", opt={"rule": READ})
    async def get_avatar(user: PathId, actor: Actor, thumb: Thumb = 0) -> FileLink:
        """Get a URL of a user's avatar."""
        graph = parts.social.graph
        return link_of(await graph.get_avatar_link(actor, UserId(user), is_thumb=thumb == 1))

    @put("/v1/me/avatar", status_code=204, opt={"rule": WRITE})
    async def put_avatar(data: JSONBody[Picture], actor: Actor) -> None:
        """Set the caller's avatar to a picture uploaded with `POST /v1/me/attachments`."""
        await parts.social.graph.put_avatar(actor, data.image)

    @delete("/v1/me/avatar", status_code=204, opt={"rule": WRITE})
    async def delete_avatar(actor: Actor) -> None:
        """Remove the caller's avatar."""
        await parts.social.graph.put_avatar(actor, None)

    # No stored idempotency response: a retry must get a form that is still valid.
    @post("/v1/me/attachments", opt={"rule": WRITE, "takes_key": True})
    async def begin_picture(
        data: JSONBody[NewAttachment], actor: Actor, request: Request[Any, Any, Any]
    ) -> Upload:
        """Start uploading a picture for an avatar or a post; continue as for chat attachments."""
        begun = await parts.uploads.begin(
            actor, space_of(actor), data.name, data.type, data.size, data.sha256, read_key(request)
        )
        if begun.form is None:
            return Upload(begun.file.id, None, {}, 0)
        return Upload(begun.file.id, begun.form.url, begun.form.fields, begun.expires_s)

    return [get_avatar, put_avatar, delete_avatar, begin_picture]


def _edges(parts: ApiContainer) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/followers", opt={"rule": READ})
    async def list_followers(
        user: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Follower]:
        """List the followers of a user, by id."""
        place = f"followers of {user} for {actor}"
        start = parts.cursors.open(place, cursor, Start)
        found = await parts.social.graph.list_followers(actor, UserId(user), start, limit)
        return page_of_people(parts, place, found)

    @get("/v1/users/{user:str}/following", opt={"rule": READ})
    async def list_following(
        user: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Follower]:
        """List the users that a user follows, by id."""
        place = f"following of {user} for {actor}"
        start = parts.cursors.open(place, cursor, Start)
        found = await parts.social.graph.list_following(actor, UserId(user), start, limit)
        return page_of_people(parts, place, found)

    return [list_followers, list_following]


def _following(parts: ApiContainer) -> list[HTTPRouteHandler]:
    @put("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE})
    async def follow(user: PathId, actor: Actor) -> None:
        """Follow a user: their future posts appear in the caller's timeline."""
        await parts.social.graph.follow(actor, UserId(user))

    @delete("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE})
    async def unfollow(user: PathId, actor: Actor) -> None:
        """Unfollow a user."""
        await parts.social.graph.unfollow(actor, UserId(user))

    return [follow, unfollow]
