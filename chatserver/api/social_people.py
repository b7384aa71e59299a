"""Profiles and who follows whom: what everybody here may see of everybody else."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.attachments import FileLink, NewAttachment, Upload
from chatserver.api.bodies import PathId
from chatserver.api.idempotency import read_key
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.parts import ApiParts
from chatserver.api.security import Actor, user_or_key
from chatserver.domain.ids import UserId
from chatserver.protocol import frames
from chatserver.service.attachments import Link, attachment_of
from chatserver.service.social import People
from chatserver.service.socialfiles import space_of

READ, WRITE = user_or_key("social:read"), user_or_key("social:write")
Start = dict[str, str | int]

Thumb = Annotated[
    int, QueryParameter(ge=0, le=1, required=False, description="1: the thumbnail instead")
]


class UserProfile(msgspec.Struct, frozen=True):
    """A user. `avatar` is the id of a picture; `followed`: by the one who asks; `follows`: him."""

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
    """Somebody in a list, since when he is in it, in milliseconds since 1970."""

    user: str
    name: str | None
    since: int


class Picture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An uploaded picture, by its id."""

    image: frames.Id


def page_of_people(parts: ApiParts, place: str, found: People) -> Page[Follower]:
    """Return a page as it is answered."""
    items = [Follower(each.user, each.name, each.since_ms) for each in found.items]
    following = None if found.next is None else parts.cursors.seal(place, dict(found.next))
    return Page(items, following)


def link_of(link: Link) -> FileLink:
    """Return an address as it is answered."""
    return FileLink(link.url, link.expires_s, attachment_of(link.file), link.file.is_looked_at)


def social_people_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes of profiles and edges."""
    return [*_profiles(parts), *_pictures(parts), *_edges(parts), *_following(parts)]


def _profiles(parts: ApiParts) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}", opt={"rule": READ})
    async def get_profile(user: PathId, actor: Actor) -> UserProfile:
        """Tell what a user shows of himself, how many follow him, and whom he follows."""
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


def _pictures(parts: ApiParts) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/avatar", opt={"rule": READ})
    async def get_avatar(user: PathId, actor: Actor, thumb: Thumb = 0) -> FileLink:
        """Tell where a user's picture can be loaded from."""
        graph = parts.social.graph
        return link_of(await graph.get_avatar_link(actor, UserId(user), is_thumb=thumb == 1))

    @put("/v1/me/avatar", status_code=204, opt={"rule": WRITE})
    async def put_avatar(data: JSONBody[Picture], actor: Actor) -> None:
        """Show a picture of oneself; it was uploaded with `POST /v1/me/attachments`."""
        await parts.social.graph.put_avatar(actor, data.image)

    @delete("/v1/me/avatar", status_code=204, opt={"rule": WRITE})
    async def delete_avatar(actor: Actor) -> None:
        """Show no picture of oneself any more."""
        await parts.social.graph.put_avatar(actor, None)

    # Not by stored answers: a repeat is to get a form that still holds, not the first one.
    @post("/v1/me/attachments", opt={"rule": WRITE, "takes_key": True})
    async def begin_picture(
        data: JSONBody[NewAttachment], actor: Actor, request: Request[Any, Any, Any]
    ) -> Upload:
        """Begin to upload a picture for oneself or a post; go on as with files of chats."""
        begun = await parts.uploads.begin(
            actor, space_of(actor), data.name, data.type, data.size, data.sha256, read_key(request)
        )
        if begun.form is None:
            return Upload(begun.file.id, None, {}, 0)
        return Upload(begun.file.id, begun.form.url, begun.form.fields, begun.expires_s)

    return [get_avatar, put_avatar, delete_avatar, begin_picture]


def _edges(parts: ApiParts) -> list[HTTPRouteHandler]:
    @get("/v1/users/{user:str}/followers", opt={"rule": READ})
    async def list_followers(
        user: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Follower]:
        """List who follows a user, by id."""
        place = f"followers of {user} for {actor}"
        start = parts.cursors.open(place, cursor, Start)
        found = await parts.social.graph.list_followers(actor, UserId(user), start, limit)
        return page_of_people(parts, place, found)

    @get("/v1/users/{user:str}/following", opt={"rule": READ})
    async def list_following(
        user: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Follower]:
        """List whom a user follows, by id."""
        place = f"following of {user} for {actor}"
        start = parts.cursors.open(place, cursor, Start)
        found = await parts.social.graph.list_following(actor, UserId(user), start, limit)
        return page_of_people(parts, place, found)

    return [list_followers, list_following]


def _following(parts: ApiParts) -> list[HTTPRouteHandler]:
    @put("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE})
    async def follow(user: PathId, actor: Actor) -> None:
        """Follow a user: his posts are in one's timeline from now on."""
        await parts.social.graph.follow(actor, UserId(user))

    @delete("/v1/me/following/{user:str}", status_code=204, opt={"rule": WRITE})
    async def unfollow(user: PathId, actor: Actor) -> None:
        """Follow a user no longer."""
        await parts.social.graph.unfollow(actor, UserId(user))

    return [follow, unfollow]
