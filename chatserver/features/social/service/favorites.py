"""Favorites: posts and messages that users save for themselves.

A favorite refers to a post or message and grants no access. The list shows the current content, and
only what the user may read at that moment. Favorites of deleted posts and messages are removed when
they are listed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Final

import attrs

from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.social.model import PostIds, PostRef
from chatserver.features.social.service.social import PostView, Social
from chatserver.features.social.warm.favorites import Favorite, MessageRef, SocialFavorites
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.history.message_context import MessageContext, Reference
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.task_groups import map_concurrently
from chatserver.warm.dynamo.paging import QueryPage, Token

NO_MESSAGE: Final = "message: the chat has no such message"
READS_IN_FLIGHT_MAX: Final = 8  # maximum concurrent message reads per page


@dataclasses.dataclass(frozen=True, slots=True)
class SavedPost:
    """A saved post. `saved_ms`: when it was saved (ms since 1970)."""

    saved_ms: int
    view: PostView


@dataclasses.dataclass(frozen=True, slots=True)
class SavedMessage:
    """A saved message in its current version. `saved_ms`: when it was saved (ms since 1970)."""

    saved_ms: int
    message: Message


@attrs.define(eq=False, repr=False, kw_only=True)
class Favorites:
    """Use cases for favorites."""

    _rows: SocialFavorites
    _posts: SocialPosts
    _social: Social
    _messages: MessageContext
    _block_policy: BlockPolicy
    _ids: PostIds  # their order is the order of saving

    async def save_post(self, user: UserId, ref: PostRef) -> None:
        """Save a post. Idempotent.

        Raises:
            NotFound: there is no such post.
            Forbidden: one of the two users blocks the other.
            TooLarge: the user has the maximum number of saved posts.
        """
        await self._social.get_post(user, UserId(ref.author), ref.post)
        await self._rows.save(user, ref, self._ids.next())

    async def save_message(self, user: UserId, ref: MessageRef) -> None:
        """Save a message. Idempotent.

        Raises:
            NotFound: there is no such message, or the user may not read it.
            TooLarge: the user has the maximum number of saved messages.
        """
        message = await self._get_message(user, ref)
        if not is_message(message) or message.deleted:
            raise NotFound(NO_MESSAGE)
        await self._rows.save(user, ref, self._ids.next())

    async def remove(self, user: UserId, ref: PostRef | MessageRef) -> None:
        """Remove a favorite. Idempotent."""
        await self._rows.remove(user, ref)

    async def list_posts(
        self, user: UserId, start: Token | None, limit: int
    ) -> QueryPage[SavedPost]:
        """Return a page of saved posts, most recently saved first.

        Guarantees:
            Deleted posts are omitted, and so are posts by users who block this user or are blocked
            by this user.
            Cost: a Query and six BatchGetItem calls.
        """

        async def load(favorites: Sequence[Favorite]) -> Sequence[SavedPost | None]:
            refs = [favorite.ref for favorite in favorites if isinstance(favorite.ref, PostRef)]
            authors = sorted({UserId(ref.author) for ref in refs} - {user})
            posts, blocked = await asyncio.gather(
                self._posts.find_posts(refs), self._block_policy.find_blocked(user, authors)
            )
            await self._rows.remove_many(user, [ref for ref in refs if ref not in posts])
            visible = [posts[ref] for ref in refs if ref in posts and ref.author not in blocked]
            views = await self._social.build_views(user, visible)
            views_by_ref = {PostRef(view.post.id, view.post.author): view for view in views}
            return [
                SavedPost(favorite.saved_ms, views_by_ref[favorite.ref])
                if isinstance(favorite.ref, PostRef) and favorite.ref in views_by_ref
                else None
                for favorite in favorites
            ]

        return await self._rows.list_page(user, "post", start, limit, load)

    async def list_messages(
        self, user: UserId, start: Token | None, limit: int
    ) -> QueryPage[SavedMessage]:
        """Return a page of saved messages, most recently saved first.

        Guarantees:
            Only messages that the user may read now (guarantee P7), in their current version.
            Deleted, expired and hidden messages are omitted.
            Cost: a Query, and a history read for each message.

        Raises:
            Unavailable: a data store that holds one of the messages does not respond.
        """

        async def read(favorite: Favorite) -> SavedMessage | None:
            if not isinstance(favorite.ref, MessageRef):
                return None
            try:
                message = await self._get_message(user, favorite.ref)
            except NotFound:
                return None  # keep the favorite: the user may become a member again
            if message.deleted:
                await self._rows.remove(user, favorite.ref)
                return None
            return SavedMessage(favorite.saved_ms, message)

        async def load(favorites: Sequence[Favorite]) -> Sequence[SavedMessage | None]:
            return await map_concurrently(
                read, favorites, in_flight_max=READS_IN_FLIGHT_MAX, name="favorite"
            )

        return await self._rows.list_page(user, "message", start, limit, load)

    async def _get_message(self, user: UserId, ref: MessageRef) -> Message:
        message = await self._messages.get_message(user, Reference(ref.chat, ref.seq))
        return codec.decode_message(message)
