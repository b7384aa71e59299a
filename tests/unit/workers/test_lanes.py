"""Lanes: what is written side by side, and what one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, GatewayId, Seq, Ts
from chatserver.hot.backlog import CommittedMessage
from chatserver.protocol.frames import Message
from chatserver.warm.messages import PersistItem
from workers.folding import Work
from workers.writing import Piece, split_lanes


def work_of(chat: str, seq: int) -> Work:
    """A message on its way."""
    message = Message(seq, seq, chat, f"m{seq}", "bob", f"r{seq}", "text", "hi")
    raw = CommittedMessage(Seq(seq), Ts(seq), None, b"")
    return Work(GatewayId("gw1"), raw, PersistItem(message, None))


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.integers(1, 8))
def test_lanes_hold_all_work_and_each_chat_in_one(chats: list[str], count: int) -> None:
    """Nothing is left out, and of a chat nothing is written beside the rest."""
    pieces: dict[str, Piece] = {}
    for seq, chat in enumerate(chats, 1):
        pieces.setdefault(chat, Piece(ChatId(chat))).works.append(work_of(chat, seq))

    lanes = split_lanes(pieces.values(), count)
    again = split_lanes(list(pieces.values())[::-1], count)

    assert len(lanes) <= count
    in_lanes = [piece.chat for lane in lanes for piece in lane]
    assert sorted(in_lanes) == sorted(set(chats))

    def mates(lanes: list[list[Piece]]) -> set[frozenset[str]]:
        return {frozenset(piece.chat for piece in lane) for lane in lanes}

    assert mates(lanes) == mates(again)
