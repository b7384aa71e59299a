"""HTTP routes for chat preferences, pinned chats and muted chats."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, patch, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from chatserver.api.authorization import USER, Actor
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest
from chatserver.features.chat_preferences.container import PreferencesContainer
from chatserver.features.chat_preferences.model import PINNED_CHATS_MAX, UNMUTED, PreferencesChange
from chatserver.protocol.frames import (
    ChatPreferences,
    Draft,
    Id,
    PinnedChats,
    SeqField,
)
from chatserver.warm.chats.muted_chats import FOR_EVER_MS

TIME_MAX_S = FOR_EVER_MS // 1000
# No memory cost: these requests store nothing in Redis.
CHANGE = {"rule": USER, "memory": 0, "errors": (404, 409)}


class PreferenceChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a chat's preferences.

    `muted_until` is in seconds since 1970: 0 mutes forever, null unmutes. A `draft` replaces only a
    draft with a lower `version`; an empty `text` deletes it.
    """

    archived: bool | UnsetType = UNSET
    muted_until: Annotated[int, Meta(ge=0, le=TIME_MAX_S)] | UnsetType | None = UNSET
    marked_unread: bool | UnsetType = UNSET
    draft: Draft | UnsetType = UNSET
    cleared_upto: SeqField | UnsetType = UNSET


class NewPinnedChats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pinned chats, top first. `if_rev`: reject the change if the current `rev` differs."""

    chats: Annotated[list[Id], Meta(max_length=PINNED_CHATS_MAX)]
    if_rev: SeqField | None = None


class ChatNotifications(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chat's mute state. `until`: when the mute ends (s since 1970); null if it has no end."""

    quiet: bool
    until: int | None = None


def build_chat_preferences_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_preference_routes(container),
        *_build_pinned_chat_routes(container),
        *_build_notification_routes(container),
    ]


def _build_preference_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/me/chat-preferences", opt={"rule": USER})
    async def list_chat_preferences(actor: Actor, page: PageOf) -> Page[ChatPreferences]:
        """List the user's chat preferences, sorted by chat id.

        Chats with default preferences are left out. Chats that the user has left may be included.
        """
        service = container.get(PreferencesContainer).preferences
        return page.build(*await service.list_page(actor, page.open(str), page.limit))

    @get("/v1/chats/{chat:str}/preferences", opt={"rule": USER})
    async def get_chat_preferences(chat: PathId, actor: Actor) -> ChatPreferences:
        """Get the user's preferences for a chat."""
        return await container.get(PreferencesContainer).preferences.get(actor, ChatId(chat))

    @patch("/v1/chats/{chat:str}/preferences", opt=CHANGE)
    async def change_chat_preferences(
        chat: PathId, data: JSONBody[PreferenceChanges], actor: Actor
    ) -> ChatPreferences:
        """Change the user's preferences for a chat; the user's devices get a signal."""
        return await container.get(PreferencesContainer).preferences.change(
            actor, ChatId(chat), _parse_change(data)
        )

    return [list_chat_preferences, get_chat_preferences, change_chat_preferences]


def _build_pinned_chat_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/me/pinned-chats", opt={"rule": USER})
    async def get_pinned_chats(actor: Actor) -> PinnedChats:
        """Get the chats that the user has pinned to the top of the chat list, in order."""
        return await container.get(PreferencesContainer).preferences.get_pinned(actor)

    @put("/v1/me/pinned-chats", opt=CHANGE)
    async def set_pinned_chats(data: JSONBody[NewPinnedChats], actor: Actor) -> PinnedChats:
        """Replace the user's pinned chats; the user's devices get a signal."""
        return await container.get(PreferencesContainer).preferences.set_pinned(
            actor, data.chats, data.if_rev
        )

    return [get_pinned_chats, set_pinned_chats]


def _build_notification_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/notifications", opt={"rule": USER})
    async def get_notifications(chat: PathId, actor: Actor) -> ChatNotifications:
        """Get the mute state of a chat."""
        muted_chats = container.get(PreferencesContainer).muted_chats
        until_ms = await muted_chats.get_until(ChatId(chat), actor)
        if until_ms <= container.clock.time() * 1000:
            return ChatNotifications(quiet=False)
        is_for_ever = until_ms >= FOR_EVER_MS
        return ChatNotifications(quiet=True, until=None if is_for_ever else until_ms // 1000)

    @put("/v1/chats/{chat:str}/notifications", opt=CHANGE)
    async def set_notifications(
        chat: PathId, data: JSONBody[ChatNotifications], actor: Actor
    ) -> ChatNotifications:
        """Mute a chat until a given time or forever, or unmute it.

        This changes `muted_until` in the chat's preferences.
        """
        if data.until is not None and not 0 < data.until <= TIME_MAX_S:
            raise BadRequest("until: must be a time in seconds since 1970")
        change = PreferencesChange(muted_until=(data.until or 0) if data.quiet else UNMUTED)
        await container.get(PreferencesContainer).preferences.change(actor, ChatId(chat), change)
        return ChatNotifications(data.quiet, data.until if data.quiet else None)

    return [get_notifications, set_notifications]


def _parse_change(data: PreferenceChanges) -> PreferencesChange:
    return PreferencesChange(
        is_archived=None if data.archived is UNSET else data.archived,
        muted_until=(
            None
            if data.muted_until is UNSET
            else UNMUTED
            if data.muted_until is None
            else data.muted_until
        ),
        is_marked_unread=None if data.marked_unread is UNSET else data.marked_unread,
        draft=None if data.draft is UNSET else data.draft,
        cleared_upto=None if data.cleared_upto is UNSET else data.cleared_upto,
    )
