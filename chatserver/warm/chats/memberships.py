"""Changes to a chat's membership and settings, in table `directory`.

The chat's item has a `version` that increases with each change. A change writes the chat's item and
the member items in one transaction, on the condition that `version` is unchanged. So if the member
items were read after the chat's item, the change is written only if none of them has changed.

Invariant: attribute `members` is the number of members.

The chat's item stores the change (`change`) until it is applied in Redis and delivered, so that
another process can complete it after a crash.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import DIRECT_PREFIX, Seq, UserId
from chatserver.domain.membership_periods import (
    FormerMember,
    Periods,
    correct_newest,
    format_periods,
)
from chatserver.domain.membership_rules import Role
from chatserver.errors import NotFound
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats import directory_items, moderation
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import CHAT, MEMBER, StoredChat, StoredMember
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient
from chatserver.warm.dynamo.conditions import Add, Attr, Change, Changes
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

CHANGED_MAX: Final = 99  # maximum members per change: a transaction has at most 100 actions
_FIXES_IN_FLIGHT_MAX: Final = 16


class Memberships:
    """Repository of memberships and their changes."""

    def __init__(self, client: DynamoClient, clock: Clock | None = None) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._directory = Directory(client)
        self._moderation = moderation.Moderation(client)
        self._clock = clock or SystemClock()

    async def get_chat(self, chat: str) -> StoredChat:
        """Return a chat. Strongly consistent. Raises NotFound."""
        return await self._directory.get_chat(chat)

    async def read(
        self, chat: str, users: Collection[str]
    ) -> tuple[StoredChat, dict[str, StoredMember]]:
        """Return `(chat, members)`; `members` maps each of `users` who is a member to their item.

        Guarantees:
            The members are read after the chat. If `commit` then succeeds for the returned chat,
            the members have not changed since.

        Raises:
            NotFound: the chat does not exist.
        """
        row = await self._directory.get_chat(chat)
        if row.count is None:
            row = dataclasses.replace(row, count=len(await self._directory.list_members(chat)))
        items = await self._table.get_items([_member_row(chat, user) for user in set(users)])
        members = [MEMBER.decode(item) for item in items]
        return row, {member.user: member for member in members}

    async def list_seniority(self, chat: str) -> list[tuple[str, Role]]:
        """Return all members of a chat and their roles, ordered by join time."""
        members = await self._directory.list_members(chat)
        members.sort(key=lambda member: (member.joined, member.user))
        return [(member.user, member.role) for member in members]

    async def list_first(self, chat: str, limit: int) -> tuple[StoredChat, list[StoredMember]]:
        """Return a chat and its first `limit` members by user id, with one Query.

        Strongly consistent.

        Raises:
            NotFound: the chat does not exist.
        """
        key = directory_items.chat_key(chat)
        span = Span(DIRECTORY, key, between=(key, directory_items.AFTER_MEMBERS))
        rows = await self._table.query(span, limit=limit + 1)
        if not rows or rows[0][Field.SK]["S"] != key or not directory_items.is_ready(rows[0]):
            raise NotFound(f"chat {chat}: does not exist")
        chat_row = CHAT.decode(rows[0])
        listed = [MEMBER.decode(row) for row in rows[1:]]
        return chat_row, directory_items.with_unlisted(chat_row, listed)[:limit]

    async def list_after(self, chat: str, after: str | None, limit: int) -> list[StoredMember]:
        """Return a chat's first `limit` members after user id `after`. Strongly consistent."""
        if chat.startswith(DIRECT_PREFIX):
            _, first_two = await self.list_first(chat, 2)
            return [member for member in first_two if member.user > (after or "")][:limit]
        key = directory_items.chat_key(chat)
        first = (
            directory_items.MEMBER_PREFIX if after is None else directory_items.member_key(after)
        )
        span = Span(DIRECTORY, key, between=(first, directory_items.AFTER_MEMBERS))
        # Read one more, because bounds are inclusive and `after` itself is dropped.
        rows = await self._table.query(span, limit=limit + 1)
        members = [MEMBER.decode(row) for row in rows if row[Field.SK]["S"] != first]
        return members[:limit]

    async def find_known(self, users: Collection[str]) -> set[str]:
        """Return which of `users` have an account. Strongly consistent."""
        return await self._directory.find_known(users)

    async def find_banned(self, chat: str, users: Collection[str]) -> set[str]:
        """Return which of `users` are banned from a chat. Strongly consistent."""
        key = directory_items.chat_key(chat)
        items = await self._table.get_items(
            [(key, moderation.ban_key(user)) for user in set(users)]
        )
        return {moderation.BAN.decode(item).user for item in items}

    async def list_former(self, chat: str, users: Collection[str]) -> dict[str, FormerMember]:
        """Return the former membership of each of `users` who has left. Strongly consistent."""
        items = await self._table.get_items(
            [directory_items.left_key(chat, user) for user in users]
        )
        return dict(map(directory_items.decode_former, items))

    async def find_periods(self, chat: str, user: str) -> Periods:
        """Return a member's earlier membership periods; may be empty. Strongly consistent."""
        row = await self._table.find(_member_row(chat, user))
        return () if row is None else MEMBER.decode(row).periods

    async def find_spans(
        self, user: str, chats: Collection[str], *, as_member: bool = False
    ) -> dict[str, tuple[int, Periods]]:
        """Return `(seq, periods)` for each of `chats` of which the user is a member.

        `seq` is the first seq that the user can read; `periods` are earlier membership periods.
        With `as_member`, `seq` is the seq at which the user joined, even if members may read the
        full history.

        Guarantees:
            Strongly consistent.
            Cost: one BatchGetItem per 50 chats.
        """
        keys: list[Key] = []
        for key in map(directory_items.chat_key, set(chats)):
            keys += [(key, key), (key, directory_items.member_key(user))]
        items = await self._table.get_items(keys)
        is_earlier_history_readable: dict[str, bool] = {}
        joined: dict[str, tuple[int, Periods]] = {}
        for item in items:
            if item[Field.PK] != item[Field.SK]:
                member = MEMBER.decode(item)
                joined[member.chat] = (max(1, member.joined), member.periods)
            elif directory_items.is_ready(item):
                chat = CHAT.decode(item)
                is_earlier_history_readable[chat.chat] = chat.history == "all"
                if user in chat.users:
                    joined.setdefault(chat.chat, (1, ()))
        return {
            chat: (1, ()) if is_earlier_history_readable[chat] and not as_member else span
            for chat, span in joined.items()
            if chat in is_earlier_history_readable
        }

    async def commit(
        self,
        chat: StoredChat,
        change: str,
        added: Mapping[str, tuple[Role, int]],
        roles: Mapping[str, Role],
        removed: Collection[str],
        settings: Mapping[str, str | int],
        large: int = 0,
        muted: Mapping[str, int | None] | None = None,
        banned: Mapping[str, str] | None = None,
        former: Mapping[str, FormerMember] | None = None,
        unstored: str = "",
    ) -> StoredChat | None:
        """Write a change to `chat`; return None if the chat has changed since it was read.

        `added` maps new members to their role and the lowest chat seq at which they join. `roles`
        maps members to new roles. `settings` may contain name, topic, picture, joining, history,
        slow_s and retention_s. `muted` maps members to the end of their mute, or None to unmute.
        `banned` maps banned users to the user who bans them. `former` maps removed members to the
        former membership to store, and rejoining members to the former membership to restore.
        `large` is the version at which the chat became large, or 0. `unstored` contains the
        changes, including this one, whose entries are not in DynamoDB yet.

        Guarantees:
            Atomic. A retry after a lost response is detected and returns the same result.
            Cancellation: the change may have been written.

        Raises:
            Unavailable: the change may have been written.
        """
        after = dataclasses.replace(
            chat,
            version=chat.version + 1,
            change=change,
            unstored=unstored,
            count=(chat.count or 0) + len(added) - len(removed),
            large=large,
            **settings,  # type: ignore[arg-type]  # the frame types have validated the values
        )
        actions = [self._make_chat_update(after, settings)]
        actions += self._make_member_writes(chat.chat, added, roles, removed, former or {})
        for user, until in (muted or {}).items():
            actions.append(self._change_member(chat.chat, user, {Field.MUTED_UNTIL: until}))
        for user, actor in (banned or {}).items():
            ban = moderation.Ban(chat.chat, user, actor, int(self._clock.time() * 1000))
            actions.append(self._table.put_action(moderation.BAN.encode(ban)))
        try:
            await self._client.transact(actions)
        except ConditionFailed as exc:
            stored = CHAT.decode(exc.stored[0]) if exc.stored and exc.stored[0] else None
            if stored is None or (stored.version, stored.change) != (after.version, change):
                return None
        return after

    async def set_retention(self, chat: str, retention_s: int) -> bool:
        """Set the message lifetime of a direct chat.

        Return False if the lifetime is unchanged or the direct chat does not exist.
        """
        is_direct = Attr(Field.KIND) == "direct"
        is_new = Attr(Field.RETENTION_S).is_absent | (Attr(Field.RETENTION_S) != retention_s)
        changes: Changes = {Field.VERSION: Add(1), Field.RETENTION_S: retention_s}
        return await try_write(self._table.update(_chat_row(chat), changes, if_=is_direct & is_new))

    async def delete_ban(self, chat: str, user: str) -> None:
        """Remove a ban. Idempotent."""
        await self._moderation.delete_ban(chat, user)

    def _change_member(self, chat: str, user: str, changes: Changes) -> Action:
        return self._table.update_action(
            _member_row(chat, user), changes, if_=Attr(Field.ROLE).exists
        )

    def _make_chat_update(self, after: StoredChat, settings: Mapping[str, str | int]) -> Action:
        assert after.count is not None, "the number of members is known"
        changes: dict[str, Change] = {
            Field.VERSION: after.version,
            Field.MEMBERS: after.count,
            Field.CHANGE: after.change or "",
            Field.UNSTORED: after.unstored or "",
            Field.LARGE: after.large,
            **settings,
        }
        is_unchanged = Attr(Field.VERSION) == after.version - 1
        is_ready = Attr(Field.STATE) == directory_items.READY
        return self._table.update_action(
            _chat_row(after.chat), changes, if_=is_unchanged & is_ready, keeps_stored=True
        )

    def _make_member_writes(
        self,
        chat: str,
        added: Mapping[str, tuple[Role, int]],
        roles: Mapping[str, Role],
        removed: Collection[str],
        former: Mapping[str, FormerMember],
    ) -> list[Action]:
        actions: list[Action] = []
        for user, (role, joined) in added.items():
            former_member = former.get(user, FormerMember())
            row = StoredMember(
                chat,
                user,
                role,
                joined,
                read=joined - 1,
                received=joined - 1,
                hidden=former_member.hidden,
                muted_until=former_member.muted_until,
                quiet_until=former_member.quiet_until,
                periods=former_member.periods,
            )
            actions.append(self._table.put_action(MEMBER.encode(row)))
        actions += [
            self._change_member(chat, user, {Field.ROLE: role}) for user, role in roles.items()
        ]
        for user in removed:
            key = _member_row(chat, user)
            if user not in former:
                actions.append(self._table.delete_action(key))
                continue
            hidden = frozenset(former[user].hidden) or None
            actions += [
                self._table.delete_action(key, if_=Attr(Field.HIDDEN).matches(hidden)),
                self._table.put_action(directory_items.encode_former(chat, user, former[user])),
            ]
        return actions

    # After a commit.

    async def record_join_seqs(self, chat: str, joined: Sequence[tuple[str, int]]) -> None:
        """Set the seqs at which members joined, after the join entries have been written.

        Guarantees:
            Idempotent. A seq never decreases. Users who are no longer members are skipped.
        """

        async def record(user_seq: tuple[str, int]) -> None:
            user, seq = user_seq
            # If the item does not exist, its attribute is missing, so the condition is false too.
            is_lower = Attr(Field.JOINED) < seq
            key = _member_row(chat, user)
            await try_write(self._table.update(key, {Field.JOINED: seq}, if_=is_lower))

        await map_concurrently(
            record, joined, in_flight_max=_FIXES_IN_FLIGHT_MAX, name="record-join-seq"
        )

    async def record_leave_seq(
        self, chat: str, user: str, mid: str, seq: int, joined: int | None = None
    ) -> None:
        """Set the seq at which entry `mid` ended a membership, after the entry has been written.

        `joined` is the seq at which the membership began; None keeps the stored value. A later
        membership of the user is not changed. Idempotent.
        """
        changes: dict[str, Change] = {Field.LEFT: seq}
        if joined is not None:
            changes[Field.JOINED] = joined
        key = directory_items.left_key(chat, user)
        await try_write(self._table.update(key, changes, if_=Attr(Field.MID) == mid))

    async def correct_newest_period(
        self, chat: str, user: str, version: int, first: int | None, last: int
    ) -> None:
        """Set the bounds of a member's newest earlier membership period; `first` None keeps it.

        Nothing changes if the user is not a member or has no earlier period, or if the chat has a
        newer version: the user may have left and rejoined. Idempotent.
        """
        key = _member_row(chat, user)
        row = await self._table.find(key)
        stored = () if row is None else MEMBER.decode(row).periods
        periods = correct_newest(stored, first, last)
        if periods != stored:
            is_unchanged = Attr(Field.PERIODS) == format_periods(stored)
            changes: Changes = {Field.PERIODS: format_periods(periods) or None}
            actions = [
                self._table.check_action(_chat_row(chat), if_=Attr(Field.VERSION) == version),
                self._table.update_action(key, changes, if_=is_unchanged),
            ]
            await try_write(self._client.transact(actions))

    async def set_joined(self, chat: str, version: int, joined: Mapping[UserId, Seq]) -> bool:
        """Set the seqs at which members joined; return False if `version` is outdated.

        The marks that a member got with the membership are lowered, too.

        Guarantees:
            Idempotent; users who are no longer members are skipped.
            Cost: one BatchGetItem, and one transaction for each member whose seq changes; for a
                lower seq, also one UpdateItem.
        """
        if not joined:
            return True
        row, members = await self.read(chat, joined)
        if row.version != version:
            return False
        for user, seq in joined.items():
            if user in members and members[user].joined != seq:
                is_unchanged, is_member = Attr(Field.VERSION) == version, Attr(Field.JOINED).exists
                actions = [
                    self._table.check_action(_chat_row(chat), if_=is_unchanged),
                    self._table.update_action(
                        _member_row(chat, user), {Field.JOINED: seq}, if_=is_member
                    ),
                ]
                # First, because a retry skips members whose seq is correct.
                await self._lower_first_marks(members[user], seq)
                if not await try_write(self._client.transact(actions)):
                    return False
        return True

    async def _lower_first_marks(self, member: StoredMember, seq: Seq) -> None:
        """Lower the marks of a member who joined at a lower `seq` and has not read anything yet."""
        first = member.joined - 1
        if seq <= first and member.read == member.received == first:
            await try_write(
                self._table.update(
                    _member_row(member.chat, member.user),
                    {Field.READ: seq - 1, Field.RECEIVED: seq - 1},
                    if_=(Attr(Field.READ) == first) & (Attr(Field.RECEIVED) == first),
                )
            )

    async def put_unstored(self, chat: str, version: int, unstored: str) -> None:
        """Replace attribute `unstored` of a chat's item, unless the chat has a newer version."""
        await self._set_unless_changed(chat, version, {Field.UNSTORED: unstored})

    async def clear_change(self, chat: str, version: int) -> None:
        """Delete the completed change from the chat's item, unless the chat has a newer version."""
        await self._set_unless_changed(chat, version, {Field.CHANGE: None})

    async def _set_unless_changed(self, chat: str, version: int, changes: Changes) -> None:
        is_unchanged = Attr(Field.VERSION) == version
        await try_write(self._table.update(_chat_row(chat), changes, if_=is_unchanged))


def _chat_row(chat: str) -> Key:
    key = directory_items.chat_key(chat)
    return key, key


def _member_row(chat: str, user: str) -> Key:
    return directory_items.chat_key(chat), directory_items.member_key(user)
