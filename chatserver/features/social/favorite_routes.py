"""HTTP routes for favorites: posts and messages that users save for themselves."""

from __future__ import annotations

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId, PathSeq
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.model import PostRef, parse_post_id
from chatserver.features.social.routes import (
    READ,
    WRITE,
    PathPost,
    PostInfo,
    build_post_info,
)
from chatserver.features.social.warm.favorites import MessageRef
from chatserver.protocol import frames

READ_MESSAGES = user_or_key("chats:read")


class FavoritePost(msgspec.Struct, frozen=True):
    """A saved post. `saved`: when the caller saved it, in milliseconds since 1970."""

    saved: int
    post: PostInfo


class FavoriteMessage(msgspec.Struct, frozen=True):
    """A saved message. `saved`: when the caller saved it, in milliseconds since 1970."""

    saved: int
    message: frames.Message


def build_favorite_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_post_routes(container), *_build_message_routes(container)]


def _build_post_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    favorites = container.get(SocialContainer).favorites

    @get("/v1/me/favorites/posts", opt={"rule": READ})
    async def list_favorite_posts(actor: Actor, page: PageOf) -> Page[FavoritePost]:
        """List the caller's saved posts that still exist, most recently saved first."""
        saved = await favorites.list_posts(actor, page.start, page.limit)
        items = [FavoritePost(each.saved_ms, build_post_info(each.view)) for each in saved.items]
        return page.build(items, saved.next)

    @put(
        "/v1/me/favorites/posts/{user:str}/{post:str}",
        status_code=204,
        opt={"rule": WRITE, "errors": (413,)},
    )
    async def save_post(user: PathId, post: PathPost, actor: Actor) -> None:
        """Save a post to the caller's private favorites."""
        await favorites.save_post(actor, PostRef(parse_post_id(post), user))

    @delete("/v1/me/favorites/posts/{user:str}/{post:str}", status_code=204, opt={"rule": WRITE})
    async def remove_saved_post(user: PathId, post: PathPost, actor: Actor) -> None:
        """Remove a post from the caller's saved posts."""
        await favorites.remove(actor, PostRef(parse_post_id(post), user))

    return [list_favorite_posts, save_post, remove_saved_post]


def _build_message_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    favorites = container.get(SocialContainer).favorites

    @get("/v1/me/favorites/messages", opt={"rule": READ_MESSAGES})
    async def list_favorite_messages(actor: Actor, page: PageOf) -> Page[FavoriteMessage]:
        """List the saved messages that the caller may still read, most recently saved first."""
        saved = await favorites.list_messages(actor, page.start, page.limit)
        items = [FavoriteMessage(each.saved_ms, each.message) for each in saved.items]
        return page.build(items, saved.next)

    @put(
        "/v1/me/favorites/messages/{chat:str}/{seq:int}",
        status_code=204,
        opt={"rule": WRITE, "errors": (413,)},
    )
    async def save_message(chat: PathId, seq: PathSeq, actor: Actor) -> None:
        """Save a message to the caller's private favorites."""
        await favorites.save_message(actor, MessageRef(ChatId(chat), Seq(seq)))

    @delete("/v1/me/favorites/messages/{chat:str}/{seq:int}", status_code=204, opt={"rule": WRITE})
    async def remove_saved_message(chat: PathId, seq: PathSeq, actor: Actor) -> None:
        """Remove a message from the caller's saved messages."""
        await favorites.remove(actor, MessageRef(ChatId(chat), Seq(seq)))

    return [list_favorite_messages, save_message, remove_saved_message]
