"""Loading of users and chats into the hot tier, and creation of chats.

Runs in `workers.rpc` on behalf of gateways. Membership is written to the directory first and to
Redis second. If the process dies in between, the next call completes it: both writes are
idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal

from chatserver.domain.clock import Clock
from chatserver.domain.ids import (
    DIRECT_PREFIX,
    ChatId,
    Ref,
    Seq,
    UserId,
    derived_chat_id,
    direct_chat_id,
)
from chatserver.domain.inboxes import ListedChat
from chatserver.domain.membership import NOT_A_MEMBER, Role, is_large_after
from chatserver.domain.moderation import BLOCKED, format_strictness
from chatserver.errors import BadRequest, Forbidden, NotFound, Unavailable
from chatserver.features.companions.model import CompanionSession
from chatserver.hot.chats.amendments import Hidden
from chatserver.hot.chats.chat_loader import HotChatLoader
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import frames
from chatserver.service.history.newest_messages import NewestMessages
from chatserver.service.history.older_tiers import OlderTiers
from chatserver.service.membership.change_records import (
    ChangeRecord,
    encode_record,
    is_large_in_inboxes,
)
from chatserver.service.membership.invitations import Invitations
from chatserver.service.membership.lost_changes import LostChanges
from chatserver.service.messaging.unapplied_changes import UnappliedChanges
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.records import Chat, Member
from chatserver.warm.messages.message_changes import MessageChanges

SESSIONS_PER_USER_MAX = 500  # companion chats, the newest; daily renewal creates many
LOADS_MAX = 3
_PAGE = 100


class ChatLoader:
    """Loads users and chats, and creates chats."""

    def __init__(
        self,
        directory: Directory,
        messages: OlderTiers,
        opening: HotChatLoader,
        boxes: Inboxes,
        clock: Clock,
        hidden: Hidden | None = None,
        members_max: int = frames.MEMBERS_MAX,
        fanout_members_max: int = frames.MEMBERS_MAX,
        restore_revoked: Callable[[UserId], Awaitable[None]] | None = None,
        apart: BlockPolicy | None = None,
        revive: Callable[[ChatId], Awaitable[bool]] | None = None,
        invitations: Invitations | None = None,
        changes: MessageChanges | None = None,
    ) -> None:
        self._invitations = invitations
        self._unapplied = None if changes is None else UnappliedChanges(messages, changes)
        self._revive = revive
        self._restore_revoked = restore_revoked
        self._fanout_members_max = fanout_members_max
        self._hidden = hidden
        self._apart = apart
        self._members_max = members_max
        self._directory = directory
        self._messages = messages
        self._newest = NewestMessages(messages, opening, clock)
        self._lost = LostChanges(messages, opening)
        self._opening = opening
        self._boxes = boxes
        self._clock = clock

    async def load_user(self, user: UserId) -> None:
        """Create the user if needed, and load the user state with chats and marks.

        Guarantees:
            Idempotent. The first call creates the user: the token proves the name.
        """
        epoch = self._opening.epoch_of_user(user)
        record = await self._directory.put_user_if_absent(user, None, self._clock.time())
        rows = await self._list_rows(user, "others")
        rows += await self._list_rows(user, "sessions", SESSIONS_PER_USER_MAX)
        chats = [_list(row.chat, row.member) for row in rows]
        if self._restore_revoked is not None:
            # Before the user state: once it is loaded, the marks in Redis are considered complete.
            await self._restore_revoked(user)
        if getattr(record, "erased_ms", None) is not None:
            # The marks reject the user. A loaded state would prevent further directory reads.
            return
        if self._apart is not None:
            await self._apart.restore(user)
        if self._hidden is not None:
            # Before the user state: the user counts as loaded from then on.
            hidden = {ChatId(row.chat.chat): row.member.hidden for row in rows if row.member.hidden}
            await self._hidden.open_hidden(user, hidden)
        await self._boxes.open_box(user, chats, epoch)

    async def _list_rows(
        self, user: UserId, part: Literal["sessions", "others"], rows_max: int | None = None
    ) -> list[Any]:
        """Return a user's chats and memberships, at most `rows_max`; None means all."""
        rows: list[Any] = []
        start = None
        while rows_max is None or len(rows) < rows_max:
            limit = _PAGE if rows_max is None else min(_PAGE, rows_max - len(rows))
            page = await self._directory.list_memberships(user, limit=limit, start=start, part=part)
            rows += page.items
            start = page.next
            if start is None:
                break
        return rows

    async def load_chat(self, chat: ChatId) -> None:
        """Load a chat into the hot tier.

        Raises:
            NotFound: there is no such chat.
            Unavailable: the chat changes repeatedly while it is read.
        """
        for number in range(LOADS_MAX):
            try:
                if await self._load_chat(chat):
                    return
            except NotFound:
                # If creating a session was interrupted, its chat may not exist yet.
                if number or self._revive is None or not await self._revive(chat):
                    raise
        raise Unavailable(f"chat {chat}: could not be opened, try again")

    async def _load_chat(self, chat: ChatId) -> bool:
        epoch = self._opening.epoch_of_chat(chat)
        # The head counts even if it has expired: its seq was assigned.
        if chat.startswith(DIRECT_PREFIX):
            (record, members), head = await asyncio.gather(
                self._directory.get_chat_with_members(chat), self._messages.find_head(chat)
            )
        else:
            # The row first: changes that are stored meanwhile are then included in the head.
            record, members = await self._directory.get_chat_with_members(chat)
            head = await self._messages.find_head(chat)
        newest = [] if head is None else await self._newest.read(chat, head)
        if self._unapplied is not None:
            newest = await self._unapplied.apply(chat, newest, epoch)
        found = await self._lost.find(record, newest)
        is_open = await self._opening.open_chat(
            chat,
            record.kind,
            record.name,
            record.version,
            {
                UserId(member.user): (
                    member.role,
                    found.joined.get(UserId(member.user), member.joined),
                )
                for member in members
            },
            (head.seq, head.ts) if head else (0, 0),
            newest,
            record.history,
            epoch,
            record.large,
            format_strictness(
                record.slow_s,
                record.retention_s,
                is_blocked=bool(record.blockers),
                is_ended=record.ended_ms is not None,
            ),
            {
                UserId(member.user): member.muted_until
                for member in members
                if member.muted_until is not None
            },
            found.changes,
            found.places,
        )
        if record.change is not None or record.unstored:
            await self._opening.note_unfinished(chat)
        return is_open

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Return the direct chat of two users, and create it if needed.

        The chat is listed for `user` immediately, and for `other` from the first message on. With
        `is_host` (the host application), limits on new chats do not apply.

        Raises:
            NotFound: there is no such user.
            BadRequest: the user has reached the limit of direct chats.
            RateLimited: the user has reached the daily limit of new chats with strangers.
            Forbidden: one blocks the other, and there is no chat yet.
        """
        chat = direct_chat_id(user, other)
        # In parallel: each call can be delayed by bulk writes.
        known, is_apart, (exists, is_listed) = await asyncio.gather(
            self._directory.find_known([other]),
            self._is_apart(user, other),
            self._directory.find_direct(chat, user),
        )
        _require_known([other], known)
        if is_apart and not exists:
            raise Forbidden(BLOCKED)
        if not is_listed and not is_host and self._invitations is not None:
            await self._invitations.require_direct_chat_quota(user)
            if not exists:
                await self._invitations.require_contact(user, other)
        if not exists:
            await self._directory.create_direct(chat, user, other, self._clock.time())
            if self._apart is not None:
                # A block made after the check above found no chat row to mark.
                await self._apart.mark_new_chat(chat, user, other)
        elif not is_listed:
            await self._directory.list_direct(chat, user)
        await self.load_chat(chat)
        return frames.ChatInfo(chat, "direct", sorted((user, other)), blocked=is_apart)

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        """Create a group; the same creator and `ref` return the same group.

        Members to whom the user is a stranger are invited, not added, unless the host application
        is the caller (`is_host`).

        Raises:
            BadRequest: the group would exceed the member limit.
            NotFound: a member does not exist; the message names the first such member.
            NotFound: the group already exists, and the user has left it.
            Conflict: `ref` was used before for another group.
            Forbidden: a member blocks the creator, or the other way round.
        """
        if len(members) + 1 > self._members_max:
            raise BadRequest(f"members: must be at most {self._members_max}, you included")
        await self._require_users(members)
        if self._apart is not None:
            await self._apart.require_unblocked(user, members)
        chat = derived_chat_id(user, ref)
        invited: list[UserId] = []
        if self._invitations is not None:
            strangers = await self._invitations.find_strangers(user, members, is_host=is_host)
            invited = [member for member in members if member in strangers]
            members = [member for member in members if member not in strangers]
            await self._invitations.require_group_quota([user, *members])
        first = None
        if is_large_after(len(members) + 1, self._fanout_members_max, was_large=False):
            first = encode_record(ChangeRecord(user, ref, "", transition="up"))
        record = await self._directory.create_group(
            chat, user, members, name, self._clock.time(), first, invited
        )
        await self.load_chat(chat)
        if invited and self._invitations is not None:
            await self._invitations.invite(user, chat, name, "member", invited)
        if record.version > 1:
            return await self._describe_changed(chat, user)
        everybody: list[str] = [user, *members]
        return frames.ChatInfo(
            chat,
            "group",
            everybody[: frames.MEMBERS_SHOWN_MAX] if record.large else everybody,
            name,
            len(everybody),
            {user: "owner"},
            large=record.large > 0,
            invited=[str(each) for each in invited],
        )

    async def _describe_changed(self, chat: ChatId, user: UserId) -> frames.ChatInfo:
        """Return the current state of an existing group, if its creator is still a member."""
        record, members = await self._directory.get_chat_with_members(chat)
        roles: dict[str, Role] = {
            member.user: member.role for member in members if member.role != "member"
        }
        names = [member.user for member in members]
        if user not in names:
            raise NotFound(NOT_A_MEMBER)
        shown = names[: frames.MEMBERS_SHOWN_MAX]
        return frames.ChatInfo(
            chat,
            "group",
            shown,
            record.name,
            len(names),
            roles,
            record.joining,
            record.history,
            large=record.large > 0,
        )

    async def open_session(self, session: CompanionSession, name: str) -> frames.ChatInfo:
        """Return the chat of a companion session, and create it if needed.

        Guarantees:
            Idempotent.
        """
        user, companion = session.user, session.companion
        try:
            record, _ = await self._directory.get_chat_with_members(session.chat)
        except NotFound:
            record = await self._directory.create_session_chat(
                session.chat, user, companion, name, self._clock.time()
            )
        await self.load_chat(session.chat)
        members: list[str] = sorted((user, companion))
        is_ended = record.ended_ms is not None
        return frames.ChatInfo(
            session.chat, "companion", members, record.name, len(members), ended=is_ended
        )

    async def _is_apart(self, user: UserId, other: UserId) -> bool:
        return self._apart is not None and await self._apart.is_blocked(user, other)

    async def _require_users(self, users: Sequence[UserId]) -> None:
        _require_known(users, await self._directory.find_known(users))

    async def read_history(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> list[frames.Message]:
        """Return messages of the warm tier, contiguous, in ascending seq."""
        if after is not None:
            return await self._messages.list_after(chat, after, limit, ts)
        return await self._messages.list_before(chat, before, limit, ts)


def _list(chat: Chat, member: Member) -> ListedChat:
    since = Seq(max(0, member.joined - 1)) if is_large_in_inboxes(chat) else None
    return ListedChat(
        ChatId(chat.chat), Seq(member.read), Seq(member.received), since, chat.version
    )


def _require_known(users: Sequence[UserId], known: Collection[str]) -> None:
    """Raise NotFound for the first of `users` that has no account."""
    for user in users:
        if user not in known:
            raise NotFound(f"{user}: there is no such user")
