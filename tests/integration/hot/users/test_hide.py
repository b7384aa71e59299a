"""hide_message.lua: messages deleted for oneself are stored, limited, and persisted."""

from __future__ import annotations

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.message_change_types import Hide
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.hot.chats.persist_backlog import Backlog, HideEntry
from chatserver.hot.redis.client import HotClient
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts

EVENT = b',"kind":"hidden"}'


def hide(scripts: Scripts, seq: int, *, hidden_max: int = 3, backlog_max: int = 100) -> int:
    """Hide a message from alice."""
    reply = scripts.run(
        "hide_message",
        {
            "chat_id": CHAT,
            "user": ALICE,
            "seq": seq,
            "hidden_max": hidden_max,
            "backlog_max": backlog_max,
            "inbox_max": 2,
            "body": EVENT,
        },
    )
    return int(reply[0])


def test_hide_is_stored_once_and_in_the_backlog(scripts: Scripts) -> None:
    """A repeat changes nothing."""
    assert [hide(scripts, 12), hide(scripts, 2), hide(scripts, 12), hide(scripts, 2)] == [
        1,
        1,
        0,
        0,
    ]

    assert scripts.hash(scripts.keys.hidden(ALICE))[CHAT] == "12,2"
    assert scripts.count_backlog() == 2
    inbox = scripts.redis.xrange(scripts.keys.inbox(ALICE))
    assert inbox == [(b"0-1", {b"!": EVENT}), (b"0-2", {b"!": EVENT})]


def test_hide_distinguishes_seqs_with_common_digits(scripts: Scripts) -> None:
    """1 is not 12, 2 or 112."""
    assert [hide(scripts, seq, hidden_max=9) for seq in (112, 12, 1, 2, 11)] == [1] * 5


def test_hide_beyond_the_limit_is_refused(scripts: Scripts) -> None:
    """Messages that are hidden already stay hidden. The inbox keeps its newest events."""
    assert [hide(scripts, seq) for seq in (1, 2, 3, 4, 3)] == [1, 1, 1, 2, 0]
    assert scripts.count_backlog() == 3
    assert [id_ for id_, _ in scripts.redis.xrange(scripts.keys.inbox(ALICE))] == [b"0-2", b"0-3"]


def test_hide_with_a_full_backlog_is_refused(scripts: Scripts) -> None:
    """Otherwise the hidden message would not reach the directory."""
    assert hide(scripts, 1, backlog_max=0) == 6
    assert scripts.hash(scripts.keys.hidden(ALICE)) == {}


def test_hide_repeated_reports_whether_the_first_one_is_persisted(scripts: Scripts) -> None:
    """The code is 3 once the user's newest hidden message is persisted."""
    backlog, checkpoint = scripts.keys.backlog(0), scripts.keys.checkpoint(0)
    hide(scripts, 1)
    hide(scripts, 2)
    first, last = (name for name, _ in scripts.redis.xrange(backlog))

    scripts.redis.hset(checkpoint, "id", first)
    assert hide(scripts, 1) == 0
    scripts.redis.hset(checkpoint, "id", last)
    assert hide(scripts, 1) == 3


async def test_hide_repeated_names_the_newest_inbox_seq(hot: HotClient, scripts: Scripts) -> None:
    """The first call may not have notified the gateways, so the second one does."""
    hidden = HiddenMessages(hot)
    _, first = await hidden.hide(ALICE, CHAT, Seq(1))
    _, again = await hidden.hide(ALICE, CHAT, Seq(1))

    assert (first.appended, first.seq) == (1, 1)
    assert (again.appended, again.seq) == (0, 1)


async def test_hidden_messages_are_read_by_chat(hot: HotClient, scripts: Scripts) -> None:
    """The result has those loaded from the directory and newer ones, of this user only."""
    hidden = HiddenMessages(hot)
    outcome, appended = await hidden.hide(ALICE, CHAT, Seq(5))
    assert (outcome, appended.seq) == (Hide.NEW, 1)
    for _ in range(2):
        await hidden.open_hidden(ALICE, {CHAT: [7, 5, 15], ChatId("c2"): [1, 2], ChatId("c3"): []})

    found = await hidden.list_hidden(ALICE, [CHAT, ChatId("c2"), ChatId("c3")])

    assert found == {CHAT: {5, 7, 15}, "c2": {1, 2}}
    assert await hidden.list_hidden(BOB, [CHAT]) == await hidden.list_hidden(ALICE, []) == {}
    (entry,) = await Backlog(hot, 0).list_after("0-0", 10)
    assert isinstance(entry, HideEntry)
    assert (entry.chat, entry.user, entry.seq, entry.size) == (CHAT, ALICE, 5, 1)
