"""hide_message.lua: what users delete for themselves is kept, bounded, and sent on."""

from __future__ import annotations

from chatserver.domain.amendments import Hide
from chatserver.domain.ids import ChatId, Seq
from chatserver.hot.chats.amendments import Hidden
from chatserver.hot.chats.backlog import Backlog, HideEntry
from chatserver.hot.redis.client import HotClient
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts

pytest_plugins = ["tests.integration.hot.fixtures"]


def hide(scripts: Scripts, seq: int, *, hidden_max: int = 3, backlog_max: int = 100) -> int:
    """Hide a message from alice."""
    keys = scripts.keys
    code: int = scripts.run(
        "hide_message",
        {
            "hidden": keys.hidden(ALICE),
            "backlog": keys.backlog(0),
            "checkpoint": keys.checkpoint(0),
        },
        {
            "chat_id": CHAT,
            "user": ALICE,
            "seq": seq,
            "hidden_max": hidden_max,
            "backlog_max": backlog_max,
        },
    )
    return code


def test_hide_is_kept_and_in_the_backlog(scripts: Scripts) -> None:
    """Once; a repeat costs nothing."""
    assert [hide(scripts, 12), hide(scripts, 2), hide(scripts, 12), hide(scripts, 2)] == [
        1,
        1,
        0,
        0,
    ]

    assert scripts.hash(scripts.keys.hidden(ALICE))[CHAT] == "12,2"
    assert scripts.waiting() == scripts.redis.xlen(scripts.keys.backlog(0)) == 2


def test_hide_of_a_seq_within_another_is_not_taken_for_it(scripts: Scripts) -> None:
    """1 is not 12, nor 2, nor 112."""
    assert [hide(scripts, seq, hidden_max=9) for seq in (112, 12, 1, 2, 11)] == [1] * 5


def test_hide_too_many_is_refused(scripts: Scripts) -> None:
    """The bound holds for new ones; what is hidden stays so."""
    assert [hide(scripts, seq) for seq in (1, 2, 3, 4, 3)] == [1, 1, 1, 2, 0]
    assert scripts.waiting() == 3


def test_hide_with_a_full_backlog_is_refused(scripts: Scripts) -> None:
    """Nothing is kept that would not reach the directory."""
    assert hide(scripts, 1, backlog_max=0) == 6
    assert scripts.hash(scripts.keys.hidden(ALICE)) == {}


def test_hide_again_is_stored_once_the_backlog_is_persisted_up_to_it(scripts: Scripts) -> None:
    """The newest of the user's hides counts: what is before it is persisted, too."""
    backlog, checkpoint = scripts.keys.backlog(0), scripts.keys.checkpoint(0)
    hide(scripts, 1)
    hide(scripts, 2)
    first, last = (name for name, _ in scripts.redis.xrange(backlog))

    scripts.redis.hset(checkpoint, "id", first)
    assert hide(scripts, 1) == 0
    scripts.redis.hset(checkpoint, "id", last)
    assert hide(scripts, 1) == 3


async def test_hidden_is_read_back_by_chat(hot: HotClient, scripts: Scripts) -> None:
    """Both what the directory had and what was hidden before it was read; of others nothing."""
    hidden = Hidden(hot)
    assert await hidden.hide(ALICE, CHAT, Seq(5)) is Hide.NEW
    for _ in range(2):
        await hidden.open_hidden(ALICE, {CHAT: [7, 5, 15], ChatId("c2"): [1, 2], ChatId("c3"): []})

    found = await hidden.list_hidden(ALICE, [CHAT, ChatId("c2"), ChatId("c3")])

    assert found == {CHAT: {5, 7, 15}, "c2": {1, 2}}
    assert await hidden.list_hidden(BOB, [CHAT]) == await hidden.list_hidden(ALICE, []) == {}
    (entry,) = await Backlog(hot, 0).list_after("0-0", 10)
    assert isinstance(entry, HideEntry)
    assert (entry.chat, entry.user, entry.seq, entry.size) == (CHAT, ALICE, 5, 1)
