"""Chat preferences: reads, changes, and signals to the user's devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId
from chatserver.errors import BadRequest, Conflict, LostRace, NotFound
from chatserver.features.chat_preferences.frames import ChatPreferencesSignal, PinnedChatsSignal
from chatserver.features.chat_preferences.model import (
    DEFAULTS_KEPT_S,
    PreferencesChange,
    apply_change,
    check_pinned,
    has_defaults,
    replace_pinned,
    without_ended_mute,
)
from chatserver.features.chat_preferences.warm import PreferenceRows
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.frames import ChatPreferences, PinnedChats
from chatserver.service.messaging.device_delivery import DeviceDelivery
from chatserver.warm.chats.directory import Directory

TRIES_MAX: Final = 5
TOO_MANY_CHANGES: Final = "too many concurrent changes; try again"


@attrs.define(eq=False, repr=False, kw_only=True)
class Preferences:
    """Reads and changes users' chat preferences."""

    _rows: PreferenceRows
    _members: MemberCheck
    _directory: Directory
    _chat_log: ChatLog
    _hidden: HiddenMessages
    _inboxes: Inboxes
    _devices: DeviceDelivery
    _clock: Clock

    async def get(self, user: UserId, chat: ChatId) -> ChatPreferences:
        """Return the user's preferences for a chat.

        Raises:
            NotFound: there is no such chat, or the user is not a member.
        """
        await self._members.get_reader(chat, user)
        return without_ended_mute(await self._rows.get(user, chat), self._clock.time())

    async def list_page(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[ChatPreferences], str | None]:
        """Return one page of preferences that differ from the defaults, and the next `after`.

        They are sorted by chat id. Chats that the user has left may be included.
        """
        page, next_after = await self._rows.list(user, after, limit)
        now_s = self._clock.time()
        shown = [without_ended_mute(row, now_s) for row in page]
        return [row for row in shown if not has_defaults(row)], next_after

    async def change(
        self, user: UserId, chat: ChatId, change: PreferencesChange
    ) -> ChatPreferences:
        """Change some of the user's preferences for a chat, and return all of them.

        Guarantees:
            Idempotent. Concurrent changes to different preferences are all kept.
            Cost: one item is read and written. A change to `muted_until` or `cleared_upto` is a
                transaction on two items.
            After `cleared_upto` changes, the bodies of messages up to this seq are hidden from the
                user.

        Raises:
            NotFound: there is no such chat, or the user is not a member.
            LostRace: too many concurrent changes.
        """
        await self._members.get_reader(chat, user)
        if change.cleared_upto is not None:
            head = await self._chat_log.get_head(chat)
            if change.cleared_upto > head.seq:
                raise BadRequest(f"cleared_upto: must be at most {head.seq}, the newest seq")
        for _ in range(TRIES_MAX):
            now_s = self._clock.time()
            before = await self._rows.get(user, chat)
            after = apply_change(before, change, now_s)
            is_changed = after is not before
            if is_changed and not await self._put(user, before, after, now_s):
                continue
            if change.cleared_upto and after.cleared_upto:
                # Hide the messages even if nothing changed: an earlier request may have stored the
                # change and then failed.
                await self._hidden.open_hidden(user, {chat: [-after.cleared_upto]})
            if is_changed:
                signal = ChatPreferencesSignal("chat_preferences", user, after)
                await self._send(user, signal)
            return without_ended_mute(after, now_s)
        raise LostRace(TOO_MANY_CHANGES)

    async def _put(
        self, user: UserId, before: ChatPreferences, after: ChatPreferences, now_s: float
    ) -> bool:
        """Replace the stored preferences; return False if the caller must read and try again."""
        chat = ChatId(after.chat)
        expires_s = int(now_s) + DEFAULTS_KEPT_S if has_defaults(after) else None
        try:
            if not await self._rows.put(user, before, after, expires_s):
                return False
        except NotFound:
            # A new direct chat has no `Member` items until its first message is stored. Create the
            # user's item, then let the caller try again.
            is_direct = chat.startswith(DIRECT_PREFIX)
            if not is_direct or not await self._directory.add_to_chat_list(chat, user):
                raise
            return False
        if before.cleared_upto not in (0, after.cleared_upto):
            await self._rows.drop_cleared(user, chat, before.cleared_upto)
        return True

    async def get_pinned(self, user: UserId) -> PinnedChats:
        """Return the user's pinned chats, in display order."""
        return await self._rows.get_pinned(user)

    async def set_pinned(
        self, user: UserId, chats: Sequence[str], if_rev: int | None
    ) -> PinnedChats:
        """Replace the user's pinned chats.

        Raises:
            BadRequest: a chat is listed twice.
            Conflict: the current `rev` is not `if_rev`.
            LostRace: too many concurrent changes.
        """
        check_pinned(chats)
        for _ in range(TRIES_MAX):
            before = await self._rows.get_pinned(user)
            if before.chats == list(chats):
                return before
            if if_rev not in (None, before.rev):
                raise Conflict("if_rev: the pinned chats have changed; get them and try again")
            after = replace_pinned(before, chats, self._clock.time())
            if await self._rows.put_pinned(user, before, after):
                await self._send(user, PinnedChatsSignal("pinned_chats", user, after))
                return after
        raise LostRace(TOO_MANY_CHANGES)

    async def _send(self, user: UserId, signal: frames.ServerFrame) -> None:
        (gateways,) = await self._inboxes.list_gateways([user])
        self._devices.send_signal(user, codec.encode(signal), gateways)
