"""Who has to be told that they came to a chat or left it, and of what it turned into.

Written by ``change_members.lua`` with the change itself; forgotten when all were told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.ids import Seq, UserId

EVERYBODY = "+"  # no user: the chat itself turned large or small


class Turn(NamedTuple):
    """A user who came or went at chat seq `seq`; one who went is owed what came after `after`.

    Without a user: all members have to be told that the chat turned large or small above `seq`.
    `is_large`: the chat was a large one when somebody came or went; or it turned into one.
    """

    field: str
    version: int
    user: UserId | None
    is_in: bool
    seq: Seq
    after: Seq
    is_large: bool


def parse_turns(reply: Sequence[bytes]) -> list[Turn]:
    """Return the fields of a chat's turnover in the order in which it happened.

    Of one change those come first who came or went, then what the chat turned into.
    """
    pairs = zip(reply[::2], reply[1::2], strict=True)
    turns = [_parse_turn(field.decode(), value.decode()) for field, value in pairs]
    return sorted(turns, key=lambda turn: (turn.version, turn.user is None))


def _parse_turn(field: str, value: str) -> Turn:
    version, _, name = field.partition(":")
    way, seq, after, large = (*value.split(":"), "0", "0")[:4]
    user = None if name == EVERYBODY else UserId(name)
    is_large = way == "up" if user is None else large == "1"
    return Turn(field, int(version), user, way == "in", Seq(int(seq)), Seq(int(after)), is_large)
