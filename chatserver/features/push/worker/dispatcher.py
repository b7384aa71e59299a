"""Push dispatch: the recipients and the content of a chat's pushes.

::

    chat ─► newest messages ─► members ─► absent, unread ─► notifications on?
                                              │ Redis           │ DynamoDB
                                              └──────► devices ─► notice ─► sender

Each recipient gets one push: the newest message from someone else and the unread count. In a large
chat only mentioned users get a push, or nobody (`notify.large`).

A client in the foreground needs no push, but Redis records a disconnect late. A closed session
counts as open for another `presence.offline_grace_s`, and a half-open socket until its ping times
out. The chat is therefore checked again after each of these delays. If the session still exists
then, it has answered a ping that was sent after the message, so the device has received the
message.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Mapping, Sequence

import structlog

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import is_companion
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import ChatError, NotFound
from chatserver.features.push.hot import ChatFacts, Due, Need, PushState
from chatserver.features.push.model import Notice, Subscription, find_mentions
from chatserver.features.push.providers.sender import PushSender
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.hot.chats.amendments import Hidden
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.users.blocks import Blocks
from chatserver.hot.users.presence_subscriptions import ALIVE_SHARE
from chatserver.protocol import codec
from chatserver.protocol.entry_rules import is_message
from chatserver.protocol.frames import Message
from chatserver.service.history.views import View
from chatserver.task_groups import open_task_group
from chatserver.warm.chats.muted_chats import MutedChats

log = structlog.get_logger()

FRESH_S = 3600.0  # older messages are not pushed

MESSAGES_MAX = 50  # messages of a chat that are read for one push
USERS_AT_ONCE = 16
BADGE_FIELDS_MAX = 1_000  # user state fields, up to four per chat; no badge above this
NAMES_MAX = 2_000
NAME_S = 60.0
LATE_S = 2.0  # delay until Redis reflects an ended session, in addition to the settings
PUSHED_MAX = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Push progress of a chat. `next_seq` is the seq of the first message that may need a push.

    `again_s` is the delay until members in the foreground are checked again; None if no member is
    in the foreground.
    """

    next_seq: Seq
    again_s: float | None = None


class PushDispatcher:
    """Sends the pushes for a chat to its members."""

    def __init__(
        self,
        *,
        container: StorageContainer,
        push_state: PushState,
        subscriptions: PushSubscriptions,
        quiet: MutedChats,
        sender: PushSender,
    ) -> None:
        self._container = container
        self._settings = container.settings.notify
        self._push_state = push_state
        self._subscriptions = subscriptions
        self._muted_chats = quiet
        self._sender = sender
        self._log = ChatLog(container.hot)
        self._blocks = Blocks(container.hot)
        self._hidden = Hidden(container.hot)
        self._slots = asyncio.Semaphore(USERS_AT_ONCE)
        self._names: collections.OrderedDict[UserId, tuple[float, str]] = collections.OrderedDict()
        # Pushes of this process: avoids reading the devices again when a chat is checked again.
        self._pushed: collections.OrderedDict[tuple[ChatId, UserId], int] = (
            collections.OrderedDict()
        )
        self._settle_ages_s = _settle_ages(container.settings)

    async def dispatch(self, due: Due) -> Progress:
        """Send pushes for messages since `due.since` to the members who are not in the foreground.

        An attempted push counts as sent, whatever its outcome.

        Guarantees:
            Idempotent: a push that was claimed for a device is not sent to it again.
            Users who left, have read the message or received it in the foreground get no push.

        Raises:
            NotFound: there is no such chat.
            Unavailable: a tier is down; some pushes may have been sent.
        """
        facts = await self._open(due.chat)
        messages = await self._list_new(due, facts)
        done = Progress(Seq(facts.top + 1))
        if not messages:
            return done
        joined = await self._list_candidates(due.chat, facts, messages)
        needs = await self._push_state.find_needs(due.chat, list(joined))
        wanted: dict[UserId, Message] = {}
        foreground: list[Message] = []
        for user, (need, read) in needs.items():
            newest = _newest_for(user, messages, max(read, joined[user] - 1))
            if newest is None:
                continue
            if need is Need.FOREGROUND:
                foreground.append(newest)
            elif self._pushed.get((due.chat, user), 0) < newest.seq:
                wanted[user] = newest
        await self._push(due.chat, wanted, needs, facts)
        return self._find_next_check(due, foreground) or done

    def _find_next_check(self, due: Due, foreground: Sequence[Message]) -> Progress | None:
        """Return when to check the foreground members again; None if no check is needed.

        `foreground` has the newest message for each member in the foreground.
        """
        waits = {}
        for message in foreground:
            age_s = (due.claimed_ms - message.ts / 1000) / 1000
            later = [settled_s - age_s for settled_s in self._settle_ages_s if settled_s > age_s]
            if later:
                waits[message.seq] = later[0]
        return Progress(Seq(min(waits)), min(waits.values())) if waits else None

    async def _push(
        self,
        chat: ChatId,
        wanted: Mapping[UserId, Message],
        needs: Mapping[UserId, tuple[Need, Seq]],
        facts: ChatFacts,
    ) -> None:
        unmuted = await self._muted_chats.find_unmuted(
            chat, list(wanted), self._container.clock.time()
        )
        async with open_task_group() as group:
            for user in unmuted:
                work = self._notify_user(user, needs[user][0], wanted[user], facts)
                group.create_task(work, name=f"push-{user}")
        for user, message in wanted.items():
            self._pushed[chat, user] = message.seq
            self._pushed.move_to_end((chat, user))
        while len(self._pushed) > PUSHED_MAX:
            self._pushed.popitem(last=False)

    async def _open(self, chat: ChatId) -> ChatFacts:
        facts = await self._push_state.find_chat(chat)
        if facts is None:
            await self._container.audiences.get(chat)  # loads the chat into Redis
            facts = await self._push_state.find_chat(chat)
        if facts is None:
            raise NotFound(f"chat {chat}: not loaded")
        return facts

    async def _list_new(self, due: Due, facts: ChatFacts) -> list[Message]:
        """Return the newest messages since `due.since`, with edits applied, oldest first."""
        found = await self._log.list_before(due.chat, Seq(facts.top + 1), MESSAGES_MAX)
        entries = [entry for entry in found if entry.seq >= due.since]
        overlay = await self._log.list_overlay(due.chat, [entry.seq for entry in entries])
        view, now = View(overlay, frozenset()), self._container.clock.time()
        messages = [
            codec.decode_message(
                codec.join_message(entry.seq, entry.ts, view.render_entry(entry, now))
            )
            for entry in entries
        ]
        oldest = (now - FRESH_S) * 1_000_000
        return [one for one in messages if is_message(one) and not one.deleted and one.ts > oldest]

    async def _list_candidates(
        self, chat: ChatId, facts: ChatFacts, messages: Sequence[Message]
    ) -> Mapping[UserId, Seq]:
        if not facts.is_large:
            return await self._push_state.find_members(chat, None)
        if self._settings.large == "none":
            return {}
        named = {user: None for one in reversed(messages) for user in find_mentions(one.body)}
        return await self._push_state.find_members(chat, list(named))

    # One member

    async def _notify_user(
        self, user: UserId, need: Need, message: Message, facts: ChatFacts
    ) -> None:
        async with self._slots:
            devices = await self._list_devices(user, need)
            if not devices:
                return
            notice = await self._compose(user, message, facts)
        if notice is not None:
            await asyncio.gather(*(self._sender.deliver(one, notice) for one in devices))

    async def _list_devices(self, user: UserId, need: Need) -> list[Subscription]:
        found = await self._subscriptions.list_of(user, self._container.clock.time())
        if need is Need.IF_DEVICES:
            await (
                self._push_state.record_devices(user)
                if found
                else self._push_state.record_no_devices(user)
            )
        return [one for one in found if self._sender.serves(one)]

    async def _compose(self, user: UserId, message: Message, facts: ChatFacts) -> Notice | None:
        """Return the push content; None if the user has read the message or a block applies."""
        chat, sender = ChatId(message.chat), UserId(message.sender)
        if not await self._push_state.is_user_state_loaded(user):
            await self._container.user_loader.load_user(user)
        if sender in await self._blocks.list_blocked(user):
            return None
        read, _ = await self._container.inboxes.get_marks(user, chat)
        if read >= message.seq:
            return None
        return Notice(
            chat=chat,
            seq=Seq(message.seq),
            ts=message.ts,
            sender=sender,
            name=facts.name if is_companion(sender) else await self._name_of(sender),
            title="" if facts.is_direct else facts.name,
            text=message.body if self._settings.preview else "",
            unread=await self._count_after(user, chat, read, facts.top),
            badge=await self._count_unread(user),
        )

    async def _count_unread(self, user: UserId) -> int | None:
        if await self._push_state.count_fields(user) > BADGE_FIELDS_MAX:
            return None
        chats = await self._container.inboxes.list_chats(user)
        counts = [self._count_after(user, chat.chat, chat.read, chat.top) for chat in chats]
        return sum(await asyncio.gather(*counts))

    async def _count_after(self, user: UserId, chat: ChatId, read: Seq, top: Seq) -> int:
        """Return how many messages after `read` the user can see."""
        if top <= read:
            return 0
        hidden = (await self._hidden.list_hidden(user, [chat])).get(chat, ())
        now_s = self._container.clock.time()
        return max(
            0, top - read - await self._log.count_unread_exclusions(chat, read, now_s, hidden)
        )

    async def _name_of(self, user: UserId) -> str:
        now = self._container.clock.monotonic()
        known = self._names.get(user)
        if known is not None and now - known[0] < NAME_S:
            return known[1]
        try:
            name = (await self._container.directory.get_user(user)).name or user
        except ChatError:
            return user  # a push without a name is better than none
        self._names[user] = (now, name)
        self._names.move_to_end(user)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        return name


def _settle_ages(settings: config.Settings) -> tuple[float, float]:
    """Return `(closed, half_open)`: seconds until a closed or half-open session is gone."""
    gateway, grace_s = settings.gateway, settings.presence.offline_grace_s
    # A killed gateway answers no pings: its users count as present until its lease expires.
    lost_s = max(
        gateway.ping_interval_s + gateway.pong_timeout_s, gateway.online_ttl_s * ALIVE_SHARE
    )
    return grace_s + LATE_S, lost_s + grace_s + LATE_S


def _newest_for(user: UserId, messages: Sequence[Message], read: int) -> Message | None:
    """Return the newest of `messages`; None if the user sent or read it, or there is none."""
    for message in reversed(messages):
        if message.sender == user or message.seq <= read:
            return None
        return message
    return None
