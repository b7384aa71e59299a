"""Lanes: what is written side by side, and what one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import GatewayId, Seq, Ts
from chatserver.hot.backlog import CommittedMessage
from chatserver.protocol.frames import Message
from chatserver.warm.messages import PersistItem
from workers.folding import Work
from workers.persist import split_lanes


def work_of(chat: str, seq: int) -> Work:
    """A message on its way."""
    message = Message(seq, seq, chat, f"m{seq}", "bob", f"r{seq}", "text", "hi")
    raw = CommittedMessage(Seq(seq), Ts(seq), None, b"")
    return Work(GatewayId("gw1"), raw, PersistItem(message, None))


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.integers(1, 8))
def test_lanes_hold_all_work_and_each_chat_in_order(chats: list[str], count: int) -> None:
    """Nothing is left out, and of a chat nothing overtakes."""
    works = [work_of(chat, seq) for seq, chat in enumerate(chats, 1)]

    lanes = split_lanes(works, count)

    assert len(lanes) <= count
    assert sorted((work for lane in lanes for work in lane), key=works.index) == works
    for chat in set(chats):
        (lane,) = [lane for lane in lanes if any(w.item.message.chat == chat for w in lane)]
        seqs = [work.item.message.seq for work in lane if work.item.message.chat == chat]
        assert seqs == sorted(seqs)
