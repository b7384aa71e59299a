"""Push dispatch: selects the recipients in a chat, and builds the content of their pushes.

::

    chat ─► newest messages ─► members ─► absent, unread ─► chat not muted?
                                              │ Redis           │ DynamoDB
                                              └──────► devices ─► notice ─► sender

Each recipient gets one push: the newest message from someone else and the unread count. In a large
chat, only mentioned users get a push, or nobody (`notify.large`).

A user with a client in the foreground needs no push, but Redis learns late that a client has
disconnected. A closed session counts as online for another `presence.offline_grace_s`; a
session with a half-open socket is not closed until its ping times out. The chat is therefore
checked again after each of these delays. If a session still exists at that time, it has answered a
ping that was sent after the message, so its device has received the message.
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
from chatserver.domain.message_change_types import NOTHING_HIDDEN
from chatserver.domain.messages import LogEntry
from chatserver.errors import ChatError, NotFound, Unavailable
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import ChatFields, DuePush, PushNeed
from chatserver.features.push.model import Notice, Subscription, find_mentions
from chatserver.features.push.settings import Notify
from chatserver.features.push.worker.push_sender import PushSender
from chatserver.hot.users.presence_states import ALIVE_SHARE
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.chats.read_marks import get_marks
from chatserver.service.history.reader_views import View
from chatserver.task_groups import open_task_group

log = structlog.get_logger()

FRESH_S = 3600.0  # older messages are not pushed

MESSAGES_MAX = 50  # maximum messages to read per chat; only the newest are read
READS_MAX = 3  # maximum reads of a chat that is evicted meanwhile
USERS_AT_ONCE = 16
# With more fields in the user state (up to four per chat), pushes have no `badge` (unread count).
BADGE_FIELDS_MAX = 1_000
NAMES_MAX = 2_000
NAME_TTL_S = 60.0
SESSION_END_DELAY_S = 2.0  # delay until Redis shows that a session has ended
PUSHED_MAX = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class PushProgress:
    """Push progress of a chat.

    `next_seq`: the first message that may still need a push. `recheck_after_s`: delay until members
    in the foreground are checked again; None if there are none.
    """

    next_seq: Seq
    recheck_after_s: float | None = None


class PushDispatcher:
    """Sends the pushes for a chat to its members."""

    def __init__(self, container: StorageContainer, sender: PushSender) -> None:
        self._container = container
        self._settings = container.settings.get(Notify)
        push = container.get(PushContainer)
        self._push_state, self._subscriptions = push.state, push.subscriptions
        self._muted_chats = push.muted_chats
        self._sender = sender
        self._log = container.chat_log
        self._unread_counts = container.unread_counts
        self._blocks = container.blocks
        self._hidden = container.hidden_messages
        self._slots = asyncio.Semaphore(USERS_AT_ONCE)
        self._names: collections.OrderedDict[UserId, tuple[float, str]] = collections.OrderedDict()
        # The ts of the newest message that this process has pushed to a member. Later checks of the
        # chat push only later messages; if Redis lost messages, they may have the same seqs.
        self._pushed: collections.OrderedDict[tuple[ChatId, UserId], int] = (
            collections.OrderedDict()
        )
        self._recheck_ages_s = _compute_recheck_ages(container.settings)

    async def dispatch(self, due: DuePush) -> PushProgress:
        """Send pushes for messages from seq `due.since` on to members without a foreground client.

        A push counts as sent after the first attempt, even if that attempt fails.

        Guarantees:
            Idempotent: a claimed push is not sent again to the same device.
            Users who have left, read the message, or received it in the foreground get no push.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: a tier is unavailable; some pushes may have been sent.
        """
        for _ in range(READS_MAX):
            chat_fields = await self._get_chat(due.chat)
            messages = await self._list_new(due, chat_fields)
            done = PushProgress(Seq(chat_fields.top + 1))
            if not messages:
                return done
            joined = await self._list_candidates(due.chat, chat_fields, messages)
            if joined is not None:
                break
        else:
            raise Unavailable(f"chat {due.chat}: Redis lost it while it was read; try again")
        needs = await self._push_state.find_needs(due.chat, list(joined))
        newest_by_user: dict[UserId, Message] = {}
        foreground: list[Message] = []
        for user, (need, read) in needs.items():
            newest = _find_newest(user, messages, max(read, joined[user] - 1))
            if newest is None:
                continue
            if need is PushNeed.FOREGROUND:
                foreground.append(newest)
            elif self._pushed.get((due.chat, user), 0) < newest.ts:
                newest_by_user[user] = newest
        await self._push(due.chat, newest_by_user, needs, chat_fields)
        return self._find_next_check(due, foreground) or done

    async def is_current(self, user: UserId, notice: Notice) -> bool:
        """Return whether a push that had to wait may still be sent.

        False if its message has been deleted or has expired, or if the sender has been blocked.

        Raises:
            Unavailable: Redis or DynamoDB does not respond.
        """
        entries = await self._log.list_range(notice.chat, notice.seq, notice.seq)
        if entries:
            messages = await self._render(notice.chat, entries)
        else:  # the entry has left Redis
            history = self._container.warm_history
            run = await history.read_run(notice.chat, Seq(notice.seq + 1), None, 1, None)
            messages = [each for each in run.messages if each.seq == notice.seq]
        now = self._container.clock.time()
        if not any(
            is_message(each) and not each.deleted and (each.expires_at or now + 1) > now
            for each in messages
        ):
            return False
        return notice.sender not in await self._blocks.list_blocked(user)

    def _find_next_check(self, due: DuePush, foreground: Sequence[Message]) -> PushProgress | None:
        """Return when to check foreground members again; None if no check is needed.

        `foreground` has the newest unread message of each member in the foreground.
        """
        waits = {}
        for message in foreground:
            age_s = (due.claimed_ms - message.ts / 1000) / 1000
            later = [settled_s - age_s for settled_s in self._recheck_ages_s if settled_s > age_s]
            if later:
                waits[message.seq] = later[0]
        return PushProgress(Seq(min(waits)), min(waits.values())) if waits else None

    async def _push(
        self,
        chat: ChatId,
        newest_by_user: Mapping[UserId, Message],
        needs: Mapping[UserId, tuple[PushNeed, Seq]],
        chat_fields: ChatFields,
    ) -> None:
        unmuted = await self._muted_chats.find_unmuted(
            chat, list(newest_by_user), self._container.clock.time()
        )
        async with open_task_group() as group:
            for user in unmuted:
                work = self._notify_user(user, needs[user][0], newest_by_user[user], chat_fields)
                group.create_task(work, name=f"push-{user}")
        for user, message in newest_by_user.items():
            self._pushed[chat, user] = message.ts
            self._pushed.move_to_end((chat, user))
        while len(self._pushed) > PUSHED_MAX:
            self._pushed.popitem(last=False)

    async def _get_chat(self, chat: ChatId) -> ChatFields:
        chat_fields = await self._push_state.find_chat(chat)
        if chat_fields is None:
            await self._container.audiences.get(chat)  # also loads the chat into Redis
            chat_fields = await self._push_state.find_chat(chat)
        if chat_fields is None:
            raise NotFound(f"chat {chat}: does not exist")
        return chat_fields

    async def _list_new(self, due: DuePush, chat_fields: ChatFields) -> list[Message]:
        """Return the newest messages since `due.since`, with edits applied, oldest first."""
        chat, end = due.chat, Seq(chat_fields.top + 1)
        newest = await self._log.list_before(chat, end, MESSAGES_MAX)
        entries = [entry for entry in newest if entry.seq >= due.since]
        messages = await self._render(chat, entries)
        first = entries[0].seq if entries else end
        if first > due.since and len(newest) < MESSAGES_MAX:
            # The chat was removed from Redis after the message had been committed.
            history = self._container.warm_history
            run = await history.read_run(chat, first, None, MESSAGES_MAX - len(entries), None)
            older = [message for message in run.messages if message.seq >= due.since]
            messages = [*self._select_fresh(older), *messages]
        return messages

    async def _render(self, chat: ChatId, entries: Sequence[LogEntry]) -> list[Message]:
        """Return the current messages among log entries: not deleted, expired or outdated."""
        overlay = await self._log.list_overlay(chat, [entry.seq for entry in entries])
        view, now = View(overlay, frozenset()), self._container.clock.time()
        messages = [
            codec.decode_message(
                codec.join_message(entry.seq, entry.ts, view.render_entry(entry, now))
            )
            for entry in entries
        ]
        return self._select_fresh(messages)

    def _select_fresh(self, messages: Sequence[Message]) -> list[Message]:
        oldest = (self._container.clock.time() - FRESH_S) * 1_000_000
        return [
            message
            for message in messages
            if is_message(message) and not message.deleted and message.ts > oldest
        ]

    async def _list_candidates(
        self, chat: ChatId, chat_fields: ChatFields, messages: Sequence[Message]
    ) -> Mapping[UserId, Seq] | None:
        """Return the members who may get a push; None if the chat was evicted from Redis."""
        if not chat_fields.is_large:
            return await self._push_state.find_members(chat, None)
        if self._settings.large == "none":
            return {}
        named = {
            user: None for message in reversed(messages) for user in find_mentions(message.body)
        }
        return await self._push_state.find_members(chat, list(named))

    # one member

    async def _notify_user(
        self, user: UserId, need: PushNeed, message: Message, chat_fields: ChatFields
    ) -> None:
        async with self._slots:
            devices = await self._list_devices(user, need)
            if not devices:
                return
            notice = await self._build_notice(user, message, chat_fields)
        if notice is not None:
            await asyncio.gather(*(self._sender.deliver(device, notice) for device in devices))

    async def _list_devices(self, user: UserId, need: PushNeed) -> list[Subscription]:
        subscriptions = await self._subscriptions.list_for_user(user, self._container.clock.time())
        if need is PushNeed.IF_DEVICES:
            await (
                self._push_state.record_devices(user)
                if subscriptions
                else self._push_state.record_no_devices(user)
            )
        return [
            subscription
            for subscription in subscriptions
            if self._sender.is_supported(subscription)
        ]

    async def _build_notice(
        self, user: UserId, message: Message, chat_fields: ChatFields
    ) -> Notice | None:
        """Return the push content.

        None if the user has read the message, or if the user or the sender blocks the other.
        """
        chat, sender = ChatId(message.chat), UserId(message.sender)
        if not await self._push_state.is_user_state_loaded(user):
            await self._container.user_loader.load_user(user)
        if sender in await self._blocks.list_blocked(user):
            return None
        marks = await get_marks(self._container.inboxes, self._container.audiences, user, chat)
        if marks.read >= message.seq:
            return None
        return Notice(
            chat=chat,
            seq=Seq(message.seq),
            ts=message.ts,
            sender=sender,
            name=chat_fields.name if is_companion(sender) else await self._get_name(sender),
            title="" if chat_fields.is_direct else chat_fields.name,
            text=message.body if self._settings.preview else "",
            unread=await self._count_after(user, chat, Seq(marks.read), chat_fields.top) or 0,
            badge=await self._count_unread(user),
        )

    async def _count_unread(self, user: UserId) -> int | None:
        if await self._push_state.count_user_state_fields(user) > BADGE_FIELDS_MAX:
            return None
        chats = await self._container.inboxes.list_chats(user)
        # Do not load chats: after a data loss in Redis, these would be all chats of all users.
        counts = await asyncio.gather(
            *(
                self._count_after(user, chat.chat, chat.read, chat.top, is_loading=False)
                for chat in chats
            )
        )
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    async def _count_after(
        self, user: UserId, chat: ChatId, read: Seq, top: Seq, *, is_loading: bool = True
    ) -> int | None:
        if top <= read:
            return 0
        hidden = (await self._hidden.list_hidden(user, [chat])).get(chat, NOTHING_HIDDEN)
        counts, now_s = self._unread_counts, self._container.clock.time()
        count = counts.count if is_loading else counts.count_loaded
        return await count(chat, read, top, now_s, hidden)

    async def _get_name(self, user: UserId) -> str:
        now = self._container.clock.monotonic()
        cached = self._names.get(user)
        if cached is not None and now - cached[0] < NAME_TTL_S:
            return cached[1]
        try:
            name = (await self._container.directory.get_user(user)).name or user
        except ChatError:
            return user  # if the name cannot be read, the push shows the user id
        self._names[user] = (now, name)
        self._names.move_to_end(user)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        return name


def _compute_recheck_ages(settings: config.Settings) -> tuple[float, float]:
    """Return `(closed, half_open)`: message ages in seconds at which to check members again.

    At the first age, closed sessions have ended in Redis; at the second, half-open ones as well.
    """
    gateway, grace_s = settings.gateway, settings.presence.offline_grace_s
    # If a gateway is killed, its users count as online until its lease expires.
    lost_s = max(
        gateway.ping_interval_s + gateway.pong_timeout_s, gateway.online_ttl_s * ALIVE_SHARE
    )
    return grace_s + SESSION_END_DELAY_S, lost_s + grace_s + SESSION_END_DELAY_S


def _find_newest(user: UserId, messages: Sequence[Message], read: int) -> Message | None:
    """Return the newest message; None if the user sent or has read it, or there is none."""
    for message in reversed(messages):
        if message.sender == user or message.seq <= read:
            return None
        return message
    return None
