"""Reads of a log with deleted messages return tombstones at their seqs."""

from __future__ import annotations

import tracemalloc

import pytest

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Mid, Ref, Seq
from chatserver.domain.message_change_types import ChangeOutcome, HiddenSeqs, MessageChange
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.message_changes import MessageChangeCommitter
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.chats.unread_counts import UnreadCounts
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import codec
from tests.integration.hot.support import ALICE, redis_settings

CHAT = ChatId("c1")
DELETED = (1, 4, 5, 8)
TOP = 10 + len(DELETED)


async def delete(hot: HotClient, target: int) -> None:
    """Delete a message for everyone."""
    ref, mid = Ref(f"d{target}"), Mid("M")
    tail = codec.encode_entry_tail(CHAT, mid, ALICE, ref, "delete", "", target)
    made = MessageChange(CHAT, ALICE, ref, mid, "dd", "delete", Seq(target), "", tail)
    changed = await MessageChangeCommitter(hot, GatewayId("gw")).commit_change(made)
    assert changed.outcome is ChangeOutcome.COMMITTED


@pytest.fixture
async def log(hot: HotClient) -> ChatLog:
    """A chat of ten messages: the first one, a range and another one are deleted."""
    keys = hot.keys
    await HotChatWriter(hot).open_chat(
        CHAT, "group", None, 1, {ALICE: ("owner", 0)}, (0, 0), [], epoch=Epoch(hot.get_epoch(0))
    )
    for seq in range(1, 11):
        tail = codec.encode_message_tail(CHAT, "M", ALICE, f"r{seq}", "text", f"m{seq}", None)
        await hot.call("XADD", keys.log(CHAT), f"{seq}-0", 1000 + seq, b"\n" + tail)
    await hot.call("HSET", keys.chat(CHAT), "seq", 10, "ts", 1010)
    for target in DELETED:
        await delete(hot, target)
    return ChatLog(hot)


def is_expected(seq: int, ts: int, tail: bytes) -> bool:
    """Return whether an entry is the expected one for its seq."""
    message = codec.decode_message(codec.join_message(seq, ts, tail))
    if seq > 10:
        return message.kind == "delete"
    is_deleted = seq in DELETED
    body = "" if is_deleted else f"m{seq}"
    return (message.body, message.deleted, message.ts) == (body, is_deleted, 1000 + seq)


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_log_with_deleted_messages_is_read_without_gaps(log: ChatLog, limit: int) -> None:
    """Pages before, after and between any two seqs are contiguous and have the right entries."""
    for seq in range(TOP + 1):
        after = await log.list_after(CHAT, Seq(seq), limit)
        before = await log.list_before(CHAT, Seq(seq), limit)
        between = await log.list_range(CHAT, Seq(max(1, seq - limit)), Seq(seq))

        assert [e.seq for e in after] == list(range(seq + 1, min(seq + limit, TOP) + 1))
        assert [e.seq for e in before] == list(range(max(1, seq - limit), seq))
        assert [e.seq for e in between] == list(range(max(1, seq - limit), seq + 1))
        assert all(is_expected(e.seq, e.ts, e.tail) for e in (*after, *before, *between))
    newest = await log.list_before(CHAT, None, limit)
    assert [e.seq for e in newest] == list(range(max(1, TOP - limit + 1), TOP + 1))


async def test_log_below_its_first_entry_has_only_tombstones(redis_url: str, log: ChatLog) -> None:
    """Tombstones remain as long as the deletions. The reader detects the missing messages."""
    async with open_hot(redis_settings(redis_url, log_max=10, inbox_max=10)) as other:
        await Backlog(other, 0).record_persisted({CHAT: Seq(TOP)}, {}, other.get_epoch(0))

    found = await log.list_before(CHAT, None, 50)

    assert [e.seq for e in found] == [1, *range(4, TOP + 1)]
    assert all(is_expected(e.seq, e.ts, e.tail) for e in found)


async def test_range_much_longer_than_the_log_is_read_in_little_memory(log: ChatLog) -> None:
    """A chat that was large for a long time has such ranges between two inbox entries."""
    tracemalloc.start()
    try:
        found = await log.list_range(CHAT, Seq(1), Seq(1_000_000))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [entry.seq for entry in found] == list(range(1, TOP + 1))
    assert peak_bytes < 2_000_000


async def fail_to_load(chat: ChatId) -> None:
    """Fail, because the chat is in Redis."""
    raise AssertionError(chat)


@pytest.mark.usefixtures("log")
async def test_unread_count_of_an_evicted_chat_loads_it_first(hot: HotClient) -> None:
    """After an eviction, Redis does not know which entries do not count."""
    names = [hot.keys.chat(CHAT), hot.keys.uncounted(CHAT)]
    copies = [await hot.call("DUMP", name) for name in names]

    async def load(chat: ChatId) -> None:
        for name, copy in zip(names, copies, strict=True):
            await hot.call("RESTORE", name, 0, copy)

    await hot.call("DEL", *names)

    count = await UnreadCounts(hot, load).count(CHAT, Seq(0), Seq(TOP), 0.0, HiddenSeqs())

    assert count == 6


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("top", [10, TOP])
async def test_unread_count_has_only_visible_messages(hot: HotClient, top: int) -> None:
    """Neither deleted messages nor the entries that delete them count, also those above `top`."""
    hidden = HiddenSeqs([-2, 6])  # cleared up to 2; 6 is deleted for this reader
    counts = UnreadCounts(hot, fail_to_load)

    everything = await counts.count(CHAT, Seq(0), Seq(top), 0.0, HiddenSeqs())
    after_clearing = await counts.count(CHAT, Seq(0), Seq(top), 0.0, hidden)
    read = await counts.count(CHAT, Seq(10), Seq(top), 0.0, hidden)

    assert (everything, after_clearing, read) == (6, 4, 0)
