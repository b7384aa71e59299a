"""The log where entries lost their text: tombstones stand in the holes, whatever is asked for."""

from __future__ import annotations

import pytest

from chatserver.domain.amendments import Amendment, Outcome
from chatserver.domain.ids import ChatId, Epoch, GatewayId, Mid, Ref, Seq
from chatserver.hot.chats.amendments import Amendments
from chatserver.hot.chats.backlog import Backlog
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.hot_chat_loader import HotChatLoader
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import codec
from tests.integration.hot.support import ALICE, patient

pytest_plugins = ["tests.integration.hot.fixtures"]

CHAT = ChatId("c1")
DELETED = (1, 4, 5, 8)
TOP = 10 + len(DELETED)


async def delete(hot: HotClient, target: int) -> None:
    """Delete a message for all."""
    ref, mid = Ref(f"d{target}"), Mid("M")
    tail = codec.encode_entry_tail(CHAT, mid, ALICE, ref, "delete", "", target)
    made = Amendment(CHAT, ALICE, ref, mid, "dd", "delete", Seq(target), "", tail)
    amended = await Amendments(hot, GatewayId("gw")).amend(made)
    assert amended.outcome is Outcome.COMMITTED


@pytest.fixture
async def log(hot: HotClient) -> ChatLog:
    """A chat of ten messages, of which some are deleted: the first, a run, and one more."""
    keys = hot.keys
    await HotChatLoader(hot).open_chat(
        CHAT, "group", None, 1, {ALICE: ("owner", 0)}, (0, 0), [], epoch=Epoch(hot.epoch_of(0))
    )
    for seq in range(1, 11):
        tail = codec.encode_message_tail(CHAT, "M", ALICE, f"r{seq}", "text", f"m{seq}", None)
        await hot.call("XADD", keys.log(CHAT), f"{seq}-0", 1000 + seq, b"\n" + tail)
    await hot.call("HSET", keys.chat(CHAT), "seq", 10, "ts", 1010)
    for target in DELETED:
        await delete(hot, target)
    return ChatLog(hot)


def is_right(seq: int, ts: int, tail: bytes) -> bool:
    """Tell whether an entry is what stands at its place now."""
    message = codec.decode_message(codec.join_message(seq, ts, tail))
    if seq > 10:
        return message.kind == "delete"
    is_gone = seq in DELETED
    body = "" if is_gone else f"m{seq}"
    return (message.body, message.deleted, message.ts) == (body, is_gone, 1000 + seq)


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_log_read_with_holes_is_whole(log: ChatLog, limit: int) -> None:
    """Before, after and between any two places, contiguous and with the right entries."""
    for place in range(TOP + 1):
        after = await log.list_after(CHAT, Seq(place), limit)
        before = await log.list_before(CHAT, Seq(place), limit)
        between = await log.list_range(CHAT, Seq(max(1, place - limit)), Seq(place))

        assert [e.seq for e in after] == list(range(place + 1, min(place + limit, TOP) + 1))
        assert [e.seq for e in before] == list(range(max(1, place - limit), place))
        assert [e.seq for e in between] == list(range(max(1, place - limit), place + 1))
        assert all(is_right(e.seq, e.ts, e.tail) for e in (*after, *before, *between))
    newest = await log.list_before(CHAT, None, limit)
    assert [e.seq for e in newest] == list(range(max(1, TOP - limit + 1), TOP + 1))


async def test_log_below_its_end_holds_tombstones_alone(redis_url: str, log: ChatLog) -> None:
    """They stay as long as the deletes do; that the rest is missing is for the reader to see."""
    async with open_hot(patient(redis_url, log_max=10, inbox_max=10)) as other:
        await Backlog(other, 0).record_persisted({CHAT: Seq(TOP)})

    found = await log.list_before(CHAT, None, 50)

    assert [e.seq for e in found] == [1, *range(4, TOP + 1)]
    assert all(is_right(e.seq, e.ts, e.tail) for e in found)
