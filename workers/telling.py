"""Push dispatch: decides which members of a chat get a push, and what it contains.

::

    chat ─► newest messages ─► members ─► absent, unread ─► notifications on?
                                              │ Redis           │ DynamoDB
                                              └──────► devices ─► notice ─► outlets

Each recipient gets one push: the newest message from someone else and the unread count. In a large
chat only mentioned users get one, or nobody (`notify.large`).

A client in the foreground needs no push, but Redis learns late that it has gone: a closed session
counts for `presence.offline_grace_s` more, and a half-open socket until its ping times out. So the
chat is due again when each of these is certain. A session that is still there by then has answered
a ping that was sent after the message, and TCP delivers in order: the device has the message.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Mapping, Sequence

import structlog

from chatserver import config
from chatserver.domain.companions import is_companion
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.pushes import Notice, Subscription, mentions_of
from chatserver.errors import ChatError, NotFound
from chatserver.hot.absence import Absence, ChatFacts, Due, Need
from chatserver.hot.amending import Hidden
from chatserver.hot.blocks import Blocks
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.watching import ALIVE_SHARE
from chatserver.protocol import codec
from chatserver.protocol.entries import is_message
from chatserver.protocol.frames import Message
from chatserver.push.outlets import Outlets
from chatserver.service.views import View
from chatserver.warm.push_subscriptions import PushSubscriptions
from chatserver.warm.quiet import QuietChats
from workers.parts import WorkerParts

log = structlog.get_logger()

MESSAGES_MAX = 50  # of a chat, looked at for one push
USERS_AT_ONCE = 16
BADGE_FIELDS_MAX = 1_000  # of a box; up to four a chat: of somebody with more it is not counted
NAMES_MAX = 2_000
NAME_S = 60.0
LATE_S = 2.0  # until an ended session is known in Redis, beyond what the settings say
PUSHED_MAX = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Push progress of a chat: `next_seq` is the first message that may need another push.

    `again_s`: when to look again for members who seem to be in front; None: there are none.
    """

    next_seq: Seq
    again_s: float | None = None


class Teller:
    """Sends the pushes of chats."""

    def __init__(
        self,
        parts: WorkerParts,
        absence: Absence,
        subscriptions: PushSubscriptions,
        quiet: QuietChats,
        outlets: Outlets,
    ) -> None:
        self._parts = parts
        self._settings = parts.settings.notify
        self._absence = absence
        self._subscriptions = subscriptions
        self._quiet = quiet
        self._outlets = outlets
        self._log = ChatLog(parts.hot)
        self._blocks = Blocks(parts.hot)
        self._hidden = Hidden(parts.hot)
        self._slots = asyncio.Semaphore(USERS_AT_ONCE)
        self._names: collections.OrderedDict[UserId, tuple[float, str]] = collections.OrderedDict()
        # What this process pushed: saves reading devices when a chat is looked at again.
        self._pushed: collections.OrderedDict[tuple[ChatId, UserId], int] = (
            collections.OrderedDict()
        )
        self._certain_s = _ages_of_certainty(parts.settings)

    async def tell(self, due: Due) -> Progress:
        """Push the messages from `due.since` on to the absent members of a chat.

        An attempted push counts as sent, whatever became of it.

        Guarantees:
            Idempotent: a push that was claimed for a device is not sent to it again.
            No push for a user who is not a member now, has read the message, or got it in front.

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
        needs = await self._absence.find(due.chat, list(joined))
        wanted: dict[UserId, Message] = {}
        in_front: list[Message] = []
        for user, (need, read) in needs.items():
            newest = _newest_for(user, messages, max(read, joined[user] - 1))
            if newest is None:
                continue
            if need is Need.IN_FRONT:
                in_front.append(newest)
            elif self._pushed.get((due.chat, user), 0) < newest.seq:
                wanted[user] = newest
        await self._push(due.chat, wanted, needs, facts)
        return self._look_again(due, in_front) or done

    def _look_again(self, due: Due, in_front: Sequence[Message]) -> Progress | None:
        """Return when to look again at members in front, by the newest message of each."""
        waits = {}
        for message in in_front:
            age_s = (due.taken_ms - message.ts / 1000) / 1000
            later = [certain_s - age_s for certain_s in self._certain_s if certain_s > age_s]
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
        listening = await self._quiet.find_listening(chat, list(wanted), self._parts.clock.time())
        try:
            async with asyncio.TaskGroup() as group:
                for user in listening:
                    work = self._tell_one(user, needs[user][0], wanted[user], facts)
                    group.create_task(work, name=f"tell-{user}")
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        for user, message in wanted.items():
            self._pushed[chat, user] = message.seq
            self._pushed.move_to_end((chat, user))
        while len(self._pushed) > PUSHED_MAX:
            self._pushed.popitem(last=False)

    async def _open(self, chat: ChatId) -> ChatFacts:
        facts = await self._absence.find_chat(chat)
        if facts is None:
            await self._parts.audiences.get(chat)  # opens it
            facts = await self._absence.find_chat(chat)
        if facts is None:
            raise NotFound(f"chat {chat}: is not open")
        return facts

    async def _list_new(self, due: Due, facts: ChatFacts) -> list[Message]:
        """Return the newest messages since `due.since` as they are now, in order."""
        found = await self._log.list_before(due.chat, Seq(facts.top + 1), MESSAGES_MAX)
        entries = [entry for entry in found if entry.seq >= due.since]
        overlay = await self._log.list_overlay(due.chat, [entry.seq for entry in entries])
        view, now = View(overlay, frozenset()), self._parts.clock.time()
        messages = [
            codec.decode_message(
                codec.join_message(entry.seq, entry.ts, view.see_entry(entry, now))
            )
            for entry in entries
        ]
        oldest = (now - self._settings.fresh_s) * 1_000_000
        return [one for one in messages if is_message(one) and not one.deleted and one.ts > oldest]

    async def _list_candidates(
        self, chat: ChatId, facts: ChatFacts, messages: Sequence[Message]
    ) -> Mapping[UserId, Seq]:
        if not facts.is_large:
            return await self._absence.find_joined(chat, None)
        if self._settings.large == "none":
            return {}
        named = {user: None for one in reversed(messages) for user in mentions_of(one.body)}
        return await self._absence.find_joined(chat, list(named))

    # one member

    async def _tell_one(self, user: UserId, need: Need, message: Message, facts: ChatFacts) -> None:
        async with self._slots:
            devices = await self._list_devices(user, need)
            if not devices:
                return
            notice = await self._compose(user, message, facts)
        if notice is not None:
            await asyncio.gather(*(self._outlets.deliver(one, notice) for one in devices))

    async def _list_devices(self, user: UserId, need: Need) -> list[Subscription]:
        found = await self._subscriptions.list_of(user, self._parts.clock.time())
        if need is Need.IF_DEVICES:
            await (self._absence.note_devices(user) if found else self._absence.note_none(user))
        return [one for one in found if self._outlets.serves(one)]

    async def _compose(self, user: UserId, message: Message, facts: ChatFacts) -> Notice | None:
        """Return what the user is told; None: he has read it, or is apart from the sender."""
        chat, sender = ChatId(message.chat), UserId(message.sender)
        if not await self._absence.is_box_known(user):
            await self._parts.opener.load_user(user)
        if sender in await self._blocks.list_apart(user):
            return None
        read, _ = await self._parts.inboxes.get_marks(user, chat)
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
        if await self._absence.count_fields(user) > BADGE_FIELDS_MAX:
            return None
        chats = await self._parts.inboxes.list_chats(user)
        counts = [self._count_after(user, chat.chat, chat.read, chat.top) for chat in chats]
        return sum(await asyncio.gather(*counts))

    async def _count_after(self, user: UserId, chat: ChatId, read: Seq, top: Seq) -> int:
        """Return how many messages after `read` the user can see."""
        if top <= read:
            return 0
        hidden = (await self._hidden.list_hidden(user, [chat])).get(chat, ())
        now_s = self._parts.clock.time()
        return max(0, top - read - await self._log.count_asides(chat, read, now_s, hidden))

    async def _name_of(self, user: UserId) -> str:
        """Return how a user is called, as of a minute ago."""
        now = self._parts.clock.monotonic()
        known = self._names.get(user)
        if known is not None and now - known[0] < NAME_S:
            return known[1]
        try:
            name = (await self._parts.directory.get_user(user)).name or user
        except ChatError:
            return user  # an unnamed push is better than none
        self._names[user] = (now, name)
        self._names.move_to_end(user)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        return name


def _ages_of_certainty(settings: config.Settings) -> tuple[float, float]:
    """Return how old a message is when closed sessions are known, and when half-open ones are."""
    gateway, grace_s = settings.gateway, settings.presence.offline_grace_s
    # A gateway that was killed takes no pings: its users count until its own lease ends.
    lost_s = max(
        gateway.ping_interval_s + gateway.pong_timeout_s, gateway.online_ttl_s * ALIVE_SHARE
    )
    return grace_s + LATE_S, lost_s + grace_s + LATE_S


def _newest_for(user: UserId, messages: Sequence[Message], read: int) -> Message | None:
    """Return the newest message that the user has not read; own messages count as read."""
    for message in reversed(messages):
        if message.sender == user or message.seq <= read:
            return None
        return message
    return None
