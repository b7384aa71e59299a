"""Recovery of membership changes whose entries Redis has lost.

A committed change is final: its entries must be in the history exactly once (decision 0011). The
chat's item keeps each change until the change's entries are stored. When the chat is loaded, each
entry is in Redis, in the warm tier, or lost. Lost entries are appended again with new seqs, so they
may now follow entries that they used to precede.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_change_types import MembershipChange
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.protocol import frames
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.service.membership.unstored_membership_changes import (
    find_change_to_load,
    find_unstored,
)
from chatserver.warm.chats.directory_items import StoredChat

_PAGE = 200


class ChangesToLoad(NamedTuple):
    """Changes to apply when a chat is loaded, and the seqs of the changes that are not lost.

    `positions` maps a change's version to the change's first seq. `joined` maps members to the seq
    at which they joined.
    """

    changes: list[MembershipChange]
    positions: dict[int, Seq]
    joined: dict[UserId, Seq]


class MembershipRecovery:
    """Finds lost membership changes when a chat is loaded."""

    def __init__(self, messages: WarmAndColdLog, hot: HotChatWriter) -> None:
        self._messages = messages
        self._hot = hot

    async def find(self, row: StoredChat, newest: Sequence[frames.Message]) -> ChangesToLoad:
        """Return the changes to apply when a chat is loaded. `newest`: the chat's newest messages.

        Guarantees:
            Cost: nothing if all changes are stored. Otherwise one Redis call. If entries are
                still missing and `newest` begins after the oldest change, the messages since that
                change are read too.
        """
        pending = find_change_to_load(row)
        changes = find_unstored(row)
        large = row.large
        if pending is not None and pending.transition:
            # The pending change makes the chat large or small again. Lost changes precede it, so
            # they are applied with the previous value of `large`.
            large = 0 if pending.transition == "up" else row.version
        seqs = await self._find_entries(ChatId(row.chat), changes, newest)
        lost: list[MembershipChange] = []
        positions: dict[int, Seq] = {}
        joined: dict[UserId, Seq] = {}
        for change in changes:
            entries = [entry for entry in change.entries if entry.mid not in seqs]
            if not entries:
                positions[change.version] = min(seqs[entry.mid] for entry in change.entries)
            elif pending is None or change.version != pending.version:
                repeat = dataclasses.replace(
                    change, entries=entries, large=large, transition="", is_repeat=True
                )
                lost.append(repeat)
            for entry in change.entries:
                if entry.mid in seqs and entry.user:
                    joined.pop(UserId(entry.user), None)
                    if entry.role and entry.is_new:
                        joined[UserId(entry.user)] = seqs[entry.mid]
        lost = [_without_superseded(change, changes, seqs) for change in lost]
        return ChangesToLoad(lost if pending is None else [*lost, pending], positions, joined)

    async def _find_entries(
        self, chat: ChatId, changes: Sequence[MembershipChange], newest: Sequence[frames.Message]
    ) -> dict[str, Seq]:
        """Return `{entry id: seq}` for the entries that are in Redis or the warm tier."""
        if not changes:
            return {}
        in_redis = await self._hot.find_changes(chat)
        seqs = {
            entry.mid: Seq(in_redis[change.version].first + index)
            for change in changes
            if change.version in in_redis
            for index, entry in enumerate(change.entries)
        }
        missing = {entry.mid for change in changes for entry in change.entries} - seqs.keys()
        after, page = min(change.after for change in changes), newest
        while missing and page:
            seqs |= {message.mid: Seq(message.seq) for message in page if message.mid in missing}
            missing -= seqs.keys()
            if after >= newest[0].seq - 1:
                break
            page = await self._messages.list_after(chat, after, _PAGE)
            after = page[-1].seq if page else after
        return seqs


def _without_superseded(
    change: MembershipChange, changes: Sequence[MembershipChange], seqs: Mapping[str, Seq]
) -> MembershipChange:
    """Return a lost change without the users that a later, stored change also affects."""
    users = {
        entry.user
        for later in changes
        if later.version > change.version
        for entry in later.entries
        if entry.mid in seqs
    }
    entries = [
        entry._replace(user="") if entry.user in users else entry for entry in change.entries
    ]
    return dataclasses.replace(change, entries=entries)
