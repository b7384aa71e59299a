"""Membership periods of former members after Redis lost membership changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from chatserver.domain.ids import ChatId, Mid, Ref, Seq, Ts, UserId
from chatserver.domain.membership_change_types import (
    ChangedChatHead,
    ChangeEntry,
    ChangePosition,
    MembershipChange,
)
from chatserver.domain.membership_periods import FormerMember, Period, correct_newest
from chatserver.domain.messages import LogEntry
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.service.membership.former_members import FormerMembers

CHAT, ALICE = ChatId("g-1"), UserId("alice")


class Tiers:
    """The entries of a chat by seq; records the corrections in the directory."""

    def __init__(self, entries: Mapping[int, str]) -> None:
        self._mids = entries
        self.fixed: list[tuple[str, int, int | None]] = []

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        mid = self._mids.get(after + 1)
        if mid is None:
            return []
        tail = codec.encode_message_tail(chat, mid, ALICE, f"r{mid}", "member", "", None)
        return [LogEntry(Seq(after + 1), Ts(1), tail)]

    async def record_leave_seq(
        self, chat: str, user: str, mid: str, seq: int, joined: int | None = None
    ) -> None:
        self.fixed.append((user, seq, joined))

    async def correct_newest_period(
        self, chat: str, user: str, version: int, first: int | None, last: int
    ) -> None:
        self.fixed.append((f"rejoined {user}", last, first))

    async def list_former(self, chat: str, users: Collection[str]) -> Mapping[str, FormerMember]:
        return {}

    async def open_hidden(self, user: UserId, hidden: Mapping[ChatId, Sequence[int]]) -> None:
        raise AssertionError(user)


class NoOlderTiers:
    """Older tiers without entries."""

    async def list_after(self, chat: str, after: int, limit: int) -> list[Message]:
        return []


def change(version: int, *entries: ChangeEntry) -> MembershipChange:
    """Return a membership change."""
    mid = Mid(entries[0].mid)
    return MembershipChange(CHAT, version, "", "joined", ALICE, Ref("r"), mid, "", entries)


def join(user: str) -> ChangeEntry:
    """Return the entry of a join."""
    return ChangeEntry(user, "member", True, b"", f"join-{user}")


def leave(user: str, *, is_new: bool = False) -> ChangeEntry:
    """Return the entry of a leave; `is_new`: the user was not a member, as with a ban."""
    return ChangeEntry(user, "", is_new, b"", f"leave-{user}")


async def fix(
    entries: Mapping[int, str], places: Mapping[int, ChangePosition], *changes: MembershipChange
) -> list[tuple[str, int, int | None]]:
    """Return the stored periods, for entries at these seqs."""
    tiers = Tiers(entries)
    head = ChangedChatHead(Seq(100), Seq(100), dict(places), {})
    members = FormerMembers(memberships=tiers, log=tiers, older=NoOlderTiers(), hidden=tiers)
    await members.correct_periods(CHAT, 9, changes, head)
    return tiers.fixed


async def test_period_with_recommitted_ends_is_stored_with_the_new_seqs() -> None:
    """The period gets the seqs of the chat head."""
    recommitted = {1: ChangePosition(Seq(5), False), 2: ChangePosition(Seq(7), False)}

    fixed = await fix(
        {5: "join-bob", 7: "leave-bob"},
        recommitted,
        change(1, join("bob")),
        change(2, leave("bob")),
    )

    assert fixed == [("bob", 7, 5)]


async def test_period_of_a_rejoined_member_ends_at_the_recommitted_leave() -> None:
    """Otherwise, the member could read entries from between the memberships."""
    recommitted = {1: ChangePosition(Seq(5), False), 2: ChangePosition(Seq(7), False)}

    fixed = await fix(
        {5: "leave-bob", 7: "join-bob"},
        recommitted,
        change(1, leave("bob")),
        change(2, join("bob")),
    )

    assert fixed == [("bob", 5, None), ("rejoined bob", 5, None)]


async def test_only_the_newest_period_of_a_member_who_rejoined_twice_is_corrected() -> None:
    """The directory corrects the newest period only, so older bounds would replace it."""
    places = {n: ChangePosition(Seq(3 + n), False) for n in (1, 2, 3, 4)}

    fixed = await fix(
        {4: "leave-bob", 5: "join-bob", 6: "leave-bob", 7: "join-bob"},
        places,
        change(1, leave("bob")),
        change(2, join("bob")),
        change(3, leave("bob")),
        change(4, join("bob")),
    )

    assert fixed == [("bob", 4, None), ("bob", 6, 5), ("rejoined bob", 6, 5)]


def test_bounds_of_an_earlier_period_do_not_replace_the_newest() -> None:
    periods = (Period(4, 14), Period(21, 23), Period(38, 42))

    assert correct_newest(periods, None, 23) == periods
    assert correct_newest(periods, 39, 43) == (*periods[:2], Period(39, 43))


async def test_partly_recommitted_change_gives_no_wrong_seq() -> None:
    """The first of two invitation entries was stored, so the second has another seq."""
    recommitted = {1: ChangePosition(Seq(5), False), 2: ChangePosition(Seq(6), False)}
    invite = change(1, join("carol"), join("bob"))

    fixed = await fix({5: "join-bob", 6: "leave-bob"}, recommitted, invite, change(2, leave("bob")))

    assert fixed == [("bob", 6, None)]


async def test_leave_that_is_not_at_its_seq_is_not_stored() -> None:
    """The owner's leave was stored; only the new owner's entry was recommitted."""
    succession = change(1, leave("bob"), ChangeEntry("carol", "owner", False, b"", "role-carol"))

    assert await fix({9: "role-carol"}, {1: ChangePosition(Seq(9), False)}, succession) == []


async def test_changes_with_known_seqs_are_not_stored_again() -> None:
    """The ban of a non-member has no period either."""
    checked = {1: ChangePosition(Seq(5), True), 2: ChangePosition(Seq(6), False)}
    banned = change(2, leave("dave", is_new=True))

    assert await fix({}, checked, change(1, leave("bob")), banned) == []
