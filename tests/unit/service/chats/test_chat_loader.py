"""Loading of chats: members, newest messages, gaps, and repeated reads."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Unavailable
from chatserver.service.history.newest_messages import RECENT_MESSAGES
from chatserver.service.membership.unstored_membership_changes import UnstoredChange, encode_record
from tests.unit.service.builders import ALICE, BOB
from tests.unit.service.chats.chats_world import Hot, Warm, make_chat_loader, message


async def test_load_chat_opens_it_with_head_members_and_newest_messages() -> None:
    """Members have the seq at which they joined; the head is loaded even if it has expired."""
    warm, hot = Warm(head=message(9), newest=[message(7), message(8)]), Hot()

    await make_chat_loader(warm, hot).load_chat(ChatId("c1"))

    assert hot.chats == [
        (
            "c1",
            "group",
            "Team",
            3,
            {ALICE: ("owner", 1), BOB: ("member", 5)},
            (9, 1009),
            [message(7), message(8)],
        )
    ]
    assert ("list_before", 10, RECENT_MESSAGES, 1010) in warm.calls


@pytest.mark.parametrize(
    ("held", "lowest", "filled"),
    [
        (0, 1, [6, 5, 4, 3, 2, 1]),  # Redis has nothing
        (4, 1, [6, 5]),  # the others are in its backlog
        (6, 1, []),
        (0, 5, [6, 5]),  # older ones were archived
    ],
)
async def test_load_chat_fills_seqs_that_no_tier_has(
    held: int, lowest: int, filled: list[int]
) -> None:
    """A message lost with Redis leaves a tombstone, not a gap that blocks reading."""
    warm = Warm(head=message(8), newest=[message(7), message(8)], lowest=lowest)
    hot = Hot(seq=Seq(held))

    await make_chat_loader(warm, hot).load_chat(ChatId("c1"))

    assert warm.filled == [(seq, 1000 + seq) for seq in filled]
    ((*_, newest),) = hot.chats
    assert [each.seq for each in newest] == [*sorted(filled), 7, 8]


async def test_load_chat_passes_history_mode_and_epoch() -> None:
    """The hot tier uses them to detect an outdated read."""
    hot = Hot()

    await make_chat_loader(Warm(), hot).load_chat(ChatId("c1"))

    assert hot.opened == [("all", "E1")]
    assert hot.unfinished == []


async def test_load_chat_with_an_outdated_read_reads_again() -> None:
    """An outdated membership is never written to the hot tier (guarantee P7)."""
    hot = Hot(stale=2)

    await make_chat_loader(Warm(), hot).load_chat(ChatId("c1"))

    assert len(hot.chats) == 3


async def test_load_chat_that_keeps_changing_is_unavailable() -> None:
    """The number of reads is limited."""
    with pytest.raises(Unavailable):
        await make_chat_loader(Warm(), Hot(stale=100)).load_chat(ChatId("c1"))


async def test_load_chat_with_an_unfinished_change_records_it() -> None:
    """The entries of the change are not in the log yet; a worker has to append them."""
    hot = Hot()

    change = encode_record(UnstoredChange("alice", "r1", "d", update_mid="M1", name="Team"))

    await make_chat_loader(Warm(change=change), hot).load_chat(ChatId("c1"))

    assert hot.unfinished == ["c1"]


async def test_load_chat_without_messages_begins_at_zero() -> None:
    """The first message is number one."""
    hot = Hot()

    await make_chat_loader(Warm(), hot).load_chat(ChatId("c1"))

    assert hot.chats[0][5:] == ((0, 0), [])
