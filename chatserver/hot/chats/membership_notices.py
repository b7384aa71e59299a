"""Pending notices that users joined or left, and that chats became large or small.

``change_members.lua`` writes a notice atomically with its change. A notice is deleted after the
users are notified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import Seq, UserId

EVERYBODY = "+"  # replaces the user id in a notice that the chat became large or small


class MembershipNotice(NamedTuple):
    """A user joined or left at chat seq `seq`, or the chat became large or small.

    A user who left must still receive the entries above `after`, up to `seq`. If `user` is None,
    the notice is for all members: the chat became large or small for entries above `seq`.
    `is_large`: the chat was large at the join or leave, or became large.
    """

    field: str
    version: int
    user: UserId | None
    is_in: bool
    seq: Seq
    after: Seq
    is_large: bool


def parse_notices(reply: Sequence[bytes]) -> list[MembershipNotice]:
    """Parse the pending notices of a chat, in the order of the changes.

    Within one change, joins and leaves come first, then that the chat became large or small.
    """
    pairs = zip(reply[::2], reply[1::2], strict=True)
    notices = [_parse_notice(field.decode(), value.decode()) for field, value in pairs]
    return sorted(notices, key=lambda notice: (notice.version, notice.user is None))


def _parse_notice(field: str, value: str) -> MembershipNotice:
    version, _, name = field.partition(":")
    way, seq, after, large = (*value.split(":"), "0", "0")[:4]
    user = None if name == EVERYBODY else UserId(name)
    is_large = way == "up" if user is None else large == "1"
    return MembershipNotice(
        field=field,
        version=int(version),
        user=user,
        is_in=way == "in",
        seq=Seq(int(seq)),
        after=Seq(int(after)),
        is_large=is_large,
    )
