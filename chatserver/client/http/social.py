"""Social graph and favorites of the client SDK, over the HTTP API.

Posts and profiles are JSON objects as in docs/openapi.json.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple
from urllib.parse import quote

import attrs
import msgspec

from chatserver.client.http.http_api import HttpApi
from chatserver.protocol.frames import PAGE_MAX, Message

Fields = dict[str, Any]


class PostsPage(NamedTuple):
    """Posts, newest first. `next` is the `cursor` of the next page, or None."""

    posts: list[Fields]
    next: str | None


class FavoritePost(NamedTuple):
    """A saved post. `saved` is when it was saved, in Unix milliseconds."""

    saved: int
    post: Fields


class FavoriteMessage(NamedTuple):
    """A saved message. `saved` is when it was saved, in Unix milliseconds."""

    saved: int
    message: Message


class FavoritePostsPage(NamedTuple):
    """Saved posts, last saved first. `next` is the `cursor` of the next page, or None."""

    items: list[FavoritePost]
    next: str | None


class FavoriteMessagesPage(NamedTuple):
    """Saved messages, last saved first. `next` is the `cursor` of the next page, or None."""

    items: list[FavoriteMessage]
    next: str | None


@attrs.define(eq=False, repr=False)
class SocialApi:
    """Follows, posts, timelines and favorites.

    Raises:
        NotFound: there is no such user, post or message, or the user has no access.
        Forbidden: one of the two users has blocked the other.
        ClientError: the request is invalid.
        Unavailable: the API did not respond; the same call may succeed later.
    """

    _api: HttpApi

    async def get_profile(self, user: str) -> Fields:
        """Return a user's public profile, with follower, following and post counts."""
        profile: Fields = await self._api.get(f"/v1/users/{quote(user)}")
        return profile

    async def follow(self, user: str) -> None:
        """Follow another user; their newest and future posts appear in the timeline. Idempotent."""
        await self._api.request("PUT", f"/v1/me/following/{quote(user)}")

    async def unfollow(self, user: str) -> None:
        """Unfollow a user. Idempotent."""
        await self._api.request("DELETE", f"/v1/me/following/{quote(user)}")

    async def create_post(self, content: str, key: str | None = None) -> Fields:
        """Create a post and return it. A retry with the same `key` does not create another post."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        post: Fields = await self._api.request(
            "POST", "/v1/me/posts", {"content": content}, headers
        )
        return post

    async def list_posts(
        self, user: str, *, cursor: str | None = None, limit: int = 50
    ) -> PostsPage:
        """Return a page of a user's posts."""
        return PostsPage(*await self._get_page(f"/v1/users/{quote(user)}/posts", cursor, limit))

    async def read_timeline(
        self, me: str, *, cursor: str | None = None, limit: int = 50
    ) -> PostsPage:
        """Return a page of the user's timeline; `me` is the user's id."""
        return PostsPage(*await self._get_page(f"/v1/users/{quote(me)}/timeline", cursor, limit))

    async def save_post(self, author: str, post: str) -> None:
        """Save a post to the user's favorites. Idempotent."""
        await self._api.request("PUT", _build_post_path(author, post))

    async def remove_saved_post(self, author: str, post: str) -> None:
        """Remove a post from the user's saved posts. Idempotent."""
        await self._api.request("DELETE", _build_post_path(author, post))

    async def list_favorite_posts(
        self, *, cursor: str | None = None, limit: int = 50
    ) -> FavoritePostsPage:
        """Return a page of the user's saved posts."""
        items, next_cursor = await self._get_page("/v1/me/favorites/posts", cursor, limit)
        return FavoritePostsPage([FavoritePost(**favorite) for favorite in items], next_cursor)

    async def save_message(self, chat: str, seq: int) -> None:
        """Save a message to the user's favorites. Idempotent."""
        await self._api.request("PUT", _build_message_path(chat, seq))

    async def remove_saved_message(self, chat: str, seq: int) -> None:
        """Remove a message from the user's saved messages. Idempotent."""
        await self._api.request("DELETE", _build_message_path(chat, seq))

    async def list_favorite_messages(
        self, *, cursor: str | None = None, limit: int = 50
    ) -> FavoriteMessagesPage:
        """Return a page of saved messages that the user can still read, in their latest version."""
        items, next_cursor = await self._get_page("/v1/me/favorites/messages", cursor, limit)
        favorites = [
            FavoriteMessage(item["saved"], msgspec.convert(item["message"], Message))
            for item in items
        ]
        return FavoriteMessagesPage(favorites, next_cursor)

    async def _get_page(
        self, path: str, cursor: str | None, limit: int
    ) -> tuple[list[Fields], str | None]:
        page = await self._api.get(path, limit=min(limit, PAGE_MAX), cursor=cursor)
        return page["items"], page["next"]


def _build_post_path(author: str, post: str) -> str:
    return f"/v1/me/favorites/posts/{quote(author)}/{quote(post)}"


def _build_message_path(chat: str, seq: int) -> str:
    return f"/v1/me/favorites/messages/{quote(chat)}/{seq}"
