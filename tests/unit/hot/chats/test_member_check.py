"""Read access to the entries of earlier memberships."""

from __future__ import annotations

from typing import Any, cast

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Period, Periods, Reader
from chatserver.hot.chats.membership import MemberCheck

CHAT, BOB = ChatId("g-1"), UserId("bob")


class Stored:
    """Earlier memberships in the directory; counts reads."""

    def __init__(self, periods: Periods) -> None:
        self.periods = periods
        self.reads = 0

    async def find_periods(self, chat: ChatId, user: UserId) -> Periods:
        self.reads += 1
        return self.periods


async def test_period_that_reaches_into_the_membership_is_withheld_until_corrected() -> None:
    """Redis lost entries, so the entries between the memberships have other seqs than before."""
    stored = Stored((Period(1, 9), Period(13, 39)))
    members = MemberCheck(cast(Any, None), cast(Any, None), stored)
    reader = Reader(Seq(29), Seq(42))

    before = await members.add_periods(CHAT, BOB, reader)
    stored.periods = (Period(1, 9), Period(13, 27))
    after = await members.add_periods(CHAT, BOB, reader)
    again = await members.add_periods(CHAT, BOB, reader)

    assert [seq for seq in (9, 20, 28) if before.is_readable(seq)] == [9]
    assert [seq for seq in (9, 20, 28) if after.is_readable(seq)] == [9, 20]
    assert (again, stored.reads) == (after, 2)
