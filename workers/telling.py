"""Decides, for a chat with new messages, who is told of them by push, and what.

::

    chat ─► newest messages ─► members ─► who is absent and has not read ─► wants to be told?
                                                │ Redis                       │ DynamoDB
                                                └──────────► devices ─► notice ─► outlets

Everybody is told of the newest message that is not his own, with how many he has not read; what
came before it is collapsed into that. Of a large chat only those whom a message mentions are told,
or nobody (`notify.large`).
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Mapping, Sequence

import structlog

from chatserver.domain.companions import is_companion
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.pushes import Notice, Subscription, mentions_of
from chatserver.errors import ChatError, NotFound
from chatserver.hot.absence import Absence, ChatFacts, Due, Need
from chatserver.hot.blocks import Blocks
from chatserver.hot.chatlog import ChatLog
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


class Teller:
    """Tells absent members of chats."""

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
        self._slots = asyncio.Semaphore(USERS_AT_ONCE)
        self._names: collections.OrderedDict[UserId, tuple[float, str]] = collections.OrderedDict()

    async def tell(self, due: Due) -> Seq:
        """Tell the absent members of a chat of what is new since `due.since`.

        Returns up to which seq they are told. A push that was tried once counts, however it ended.

        Guarantees:
            Idempotent: what was claimed for a device is not sent to it again.
            Nobody is told who is no member now, has read it, or shows the client.

        Raises:
            NotFound: there is no such chat.
            Unavailable: a tier is away; some may have been told.
        """
        facts = await self._open(due.chat)
        messages = await self._list_new(due, facts)
        if not messages:
            return facts.top
        joined = await self._list_candidates(due.chat, facts, messages)
        needs = await self._absence.find(due.chat, list(joined))
        wanted: dict[UserId, Message] = {}
        for user, (_, read) in needs.items():
            newest = _newest_for(user, messages, max(read, joined[user] - 1))
            if newest is not None:
                wanted[user] = newest
        listening = await self._quiet.find_listening(
            due.chat, list(wanted), self._parts.clock.time()
        )
        try:
            async with asyncio.TaskGroup() as group:
                for user in listening:
                    work = self._tell_one(user, needs[user][0], wanted[user], facts)
                    group.create_task(work, name=f"tell-{user}")
        except* ChatError as failures:
            raise failures.exceptions[0] from None
        return facts.top

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
            unread=await self._count_after(chat, read, facts.top),
            badge=await self._count_unread(user),
        )

    async def _count_unread(self, user: UserId) -> int | None:
        if await self._absence.count_fields(user) > BADGE_FIELDS_MAX:
            return None
        chats = await self._parts.inboxes.list_chats(user)
        counts = [self._count_after(chat.chat, chat.read, chat.top) for chat in chats]
        return sum(await asyncio.gather(*counts))

    async def _count_after(self, chat: ChatId, read: Seq, top: Seq) -> int:
        """Return how many messages stand after `read`; what changes others is none."""
        if top <= read:
            return 0
        return max(0, top - read - await self._log.count_asides(chat, read))

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


def _newest_for(user: UserId, messages: Sequence[Message], read: int) -> Message | None:
    """Return the newest message that the user has not read; what he sent, he has read."""
    for message in reversed(messages):
        if message.sender == user or message.seq <= read:
            return None
        return message
    return None
