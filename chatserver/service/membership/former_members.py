"""Former members: state that is stored when members leave, and restored when they rejoin.

The state consists of the membership periods, the messages that the member deleted for themselves,
the time until which notifications are muted, and the end of a moderator's mute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_change_types import ChangedChatHead, ChangeEntry, MembershipChange
from chatserver.domain.membership_periods import FormerMember, Period
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.protocol import codec
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.chats.directory_items import StoredMember
from chatserver.warm.chats.memberships import Memberships

CHECKS_IN_FLIGHT_MAX: Final = 16


def make_former_member(
    member: StoredMember, joined: int, left_seq: int, mid: str, stored: int
) -> FormerMember:
    """Return the state to store for a member who leaves by entry `mid`, at `left_seq` or later."""
    return FormerMember(
        last=Period(max(1, joined), left_seq),
        mid=mid,
        stored=stored,
        periods=member.periods,
        hidden=member.hidden,
        quiet_until=member.quiet_until,
        muted_until=member.muted_until,
    )


@attrs.define(eq=False, repr=False, kw_only=True)
class FormerMembers:
    """Stores and restores former members."""

    _memberships: Memberships
    _log: ChatLog
    _older: WarmAndColdLog
    _hidden: HiddenMessages
    _clock: Clock = attrs.field(factory=SystemClock)

    async def restore(self, chat: ChatId, users: Collection[str]) -> dict[str, FormerMember]:
        """Return the stored state of the former members among `users`, who are rejoining.

        After it returns, Redis has the list of messages that these users deleted for themselves.

        Guarantees:
            No membership period includes entries committed after the user left. If the hot tier has
                lost the leave entry, the last period ends with the entries stored before the leave.
            Idempotent.
            Cost: a BatchGetItem. For each former member, also up to two Redis calls, and an entry
                read from an older tier if it is not in Redis.

        Raises:
            Unavailable: a required tier does not respond.
        """
        members = list((await self._memberships.list_former(chat, users)).items()) if users else []
        restored: dict[str, FormerMember] = {}
        for start in range(0, len(members), CHECKS_IN_FLIGHT_MAX):
            batch = members[start : start + CHECKS_IN_FLIGHT_MAX]
            closed = await asyncio.gather(*(self._restore(chat, *item) for item in batch))
            restored |= {user: former for (user, _), former in zip(batch, closed, strict=True)}
        return restored

    async def correct_periods(
        self,
        chat: ChatId,
        version: int,
        changes: Sequence[MembershipChange],
        head: ChangedChatHead,
        users: Collection[str] | None = None,
    ) -> None:
        """Correct the stored seqs at which `users` (None: all) left, also if they rejoined.

        `changes` are the changes in the chat's item of this `version`. If Redis loses them, they
        are applied again with new seqs. Without the correction, the stored membership period would
        end too early, or include entries from after the user left.

        Guarantees:
            Idempotent. A seq is stored only if the chat has the leave entry at that seq.
            Cost: nothing unless the chat has been loaded since the change; then reads of one or two
                entries and an UpdateItem for each user who left.

        Raises:
            Unavailable: a required tier does not respond.
        """
        joins: dict[str, tuple[Seq, str]] = {}
        # User → bounds of the newest ended period, and of the one before the current membership.
        ended: dict[str, tuple[Seq | None, Seq]] = {}
        rejoined: dict[str, tuple[Seq | None, Seq]] = {}
        for change in changes:
            position = head.positions.get(change.version)
            if position is None or position.is_checked:
                for entry in change.entries:
                    ended.pop(entry.user, None)
                    if _is_leave(entry):
                        rejoined.pop(entry.user, None)
                continue
            for index, entry in enumerate(change.entries):
                seq = Seq(position.first + index)
                if entry.role and entry.is_new:
                    joins[entry.user] = seq, entry.mid
                    if entry.user in ended:
                        rejoined[entry.user] = ended.pop(entry.user)
                elif _is_leave(entry) and (users is None or entry.user in users):
                    joined = joins.get(entry.user)
                    # Only the newest stored period is corrected, so forget the periods before it.
                    ended.pop(entry.user, None)
                    rejoined.pop(entry.user, None)
                    if await self._find_mid(chat, seq) == entry.mid:
                        first = await self._find_seq(chat, *joined) if joined else None
                        ended[entry.user] = first, seq
                        await self._memberships.record_leave_seq(
                            chat, entry.user, entry.mid, seq, first
                        )
        for user, bounds in rejoined.items():
            await self._memberships.correct_newest_period(chat, user, version, *bounds)

    async def _find_seq(self, chat: ChatId, seq: Seq, mid: str) -> Seq | None:
        return seq if await self._find_mid(chat, seq) == mid else None

    async def _restore(self, chat: ChatId, user: str, former: FormerMember) -> FormerMember:
        await self._hidden.open_hidden(UserId(user), {chat: former.hidden})
        end = former.last.last
        is_confirmed = end > 0 and await self._find_mid(chat, end) == former.mid
        return former.close(is_confirmed=is_confirmed, now_s=self._clock.time())

    async def _find_mid(self, chat: ChatId, seq: int) -> str | None:
        after = Seq(seq - 1)
        entries = await self._log.list_after(chat, after, 1)
        if entries and entries[0].seq == seq:
            entry = entries[0]
            message = codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
            return message.mid
        messages = await self._older.list_after(chat, after, 1)
        return messages[0].mid if messages and messages[0].seq == seq else None


def _is_leave(entry: ChangeEntry) -> bool:
    """Return whether the entry ends a membership; the ban of a non-member does not."""
    return bool(entry.user) and not entry.role and not entry.is_new
