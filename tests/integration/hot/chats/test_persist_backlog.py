"""The backlog as the persist worker reads it, and the end of fan-outs after notifications."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import GatewayId, Seq
from chatserver.hot.bus.gateway_stream import GatewayStream, GatewayStreamWriter, NewSeq
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.persist_backlog import Backlog, CommitEntry, MarkEntry, next_entry_id
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import OnReply
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.worker_leases import Lease
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, Sending
from tests.support.servers.processes import eventually


@pytest.fixture
def gate(hot: HotClient, scripts: Scripts) -> str:
    """Open a chat; return its `gate` field."""
    scripts.open_chat(ALICE, BOB, epoch=hot.epochs[0])
    return f"{hot.epochs[0]}:1"


def commit(scripts: Scripts, gate: str, *refs: str, receiver: str = "") -> None:
    """Commit messages in one call."""
    batch = [Sending(ALICE, ref, gate=gate, tail=f"t-{ref}", receiver=receiver) for ref in refs]
    scripts.accept(*batch, epoch=gate.split(":")[0])


async def test_backlog_entries_are_read_as_they_were_written(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """Pages have commits with all their messages, and marks, in order."""
    commit(scripts, gate, "r1", "r2", receiver="bob")
    scripts.list_chat(BOB)
    await Inboxes(hot).mark(BOB, CHAT, Seq(1), Seq(2))
    commit(scripts, gate, "r3")

    first, mark, last = await Backlog(hot, 0).list_after("0-0", 10)

    assert isinstance(first, CommitEntry)
    assert first.gateway == "gw-here"
    assert [(m.seq, m.receiver, m.tail) for m in first.messages] == [
        (1, "bob", b"t-r1"),
        (2, "bob", b"t-r2"),
    ]
    assert first.messages[0].ts < first.messages[1].ts
    assert isinstance(mark, MarkEntry)
    assert (mark.chat, mark.user, mark.read, mark.received) == (CHAT, BOB, 1, 2)
    assert isinstance(last, CommitEntry)
    assert last.messages[0].receiver is None
    assert [entry.size for entry in (first, mark, last)] == [2, 1, 1]


async def test_backlog_pages_start_after_an_entry(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """A page starts after the given entry."""
    for ref in ("r1", "r2", "r3"):
        commit(scripts, gate, ref)
    backlog = Backlog(hot, 0)
    entries = await backlog.list_after("0-0", 10)

    assert await backlog.list_after(entries[0].id, 1) == entries[1:2]
    assert await backlog.list_after(entries[2].id, 10) == []


async def test_backlog_checkpoint_of_the_lease_holder_trims_and_counts(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """Persisted entries are removed, and only the lease holder can confirm them."""
    for ref in ("r1", "r2", "r3"):
        commit(scripts, gate, ref)
    backlog = Backlog(hot, 0)
    old, new = (
        Lease(hot=hot, partition=0, work="persist", owner=owner, ttl_s=60, clock=SystemClock())
        for owner in ("old", "new")
    )
    await old.claim()
    await old.release()
    await new.claim()
    entries, epoch = await backlog.list_after("0-0", 10), hot.get_epoch(0)

    assert not await backlog.checkpoint(old, entries[2].id, epoch)
    assert await backlog.get_checkpoint() == "0-0"
    assert await backlog.count_waiting() == 3

    assert await backlog.checkpoint(new, entries[1].id, epoch)
    assert await backlog.get_checkpoint() == entries[1].id
    assert await backlog.count_waiting() == 1
    assert await backlog.list_after("0-0", 10) == entries[2:]
    assert await backlog.checkpoint(new, entries[2].id, epoch)
    assert await backlog.count_waiting() == 0


async def test_backlog_that_is_kept_for_other_readers_has_nothing_waiting(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """Persisted entries wait for nothing; with a new one, the whole stream counts."""
    for ref in ("r1", "r2"):
        commit(scripts, gate, ref)
    backlog = Backlog(hot, 0)
    entries = await backlog.list_after("0-0", 10)
    scripts.redis.hset(scripts.keys.checkpoint(0), "id", entries[-1].id)

    persisted = await backlog.count_waiting()
    commit(scripts, gate, "r3")

    assert (persisted, await backlog.count_waiting()) == (0, 3)


async def test_backlog_dead_letters_keep_the_message_and_the_reason(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """Operators get all fields that are needed to requeue the message."""
    commit(scripts, gate, "r1", receiver="bob")
    backlog = Backlog(hot, 0)
    (entry,) = await backlog.list_after("0-0", 10)
    assert isinstance(entry, CommitEntry)
    (message,) = entry.messages

    await backlog.add_dead_letter(message, "x" * 9_999)

    ((_, fields),) = scripts.redis.xrange(scripts.keys.dead(0))
    assert fields == {
        b"s": b"1",
        b"t": b"%d" % message.ts,
        b"r": b"bob",
        b"m": b"t-r1",
        b"why": b"x" * 500,
    }


@given(st.integers(0, 2**63), st.integers(0, 2**63 - 1))
def test_following_id_is_the_next_possible_id(ms: int, number: int) -> None:
    """Trimming up to it keeps all later entries."""
    assert next_entry_id(f"{ms}-{number}") == f"{ms}-{number + 1}"


# end of fan-outs


async def test_finish_soon_runs_after_the_notifications_of_the_tick(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """A chat is removed from the list only after the notifications to other gateways are sent."""
    gateway = GatewayId("gw1")
    await GatewayStream(hot, gateway).renew()
    scripts.redis.zadd(scripts.keys.undelivered(0), {CHAT: 1})
    writer = GatewayStreamWriter(hot)
    undelivered = UndeliveredChats(hot, writer)
    order: list[str] = []
    send = hot.send

    def record_and_send(on_reply: OnReply, *args: Value) -> None:
        if args[0] == "EVALSHA":
            order.append(str(args[1]))
        send(on_reply, *args)

    hot.send = record_and_send  # type: ignore[method-assign]  # to see the order of the calls

    undelivered.finish_soon(CHAT, Seq(1))
    writer.send(gateway, NewSeq("alice", 1))
    await eventually(lambda: scripts.undelivered() == [])

    assert order == [load_script("transaction").sha, load_script("finish_fan_outs").sha]


async def test_finish_soon_in_one_tick_finishes_the_newest_seq(
    hot: HotClient, scripts: Scripts, gate: str
) -> None:
    """The chat is removed from the list, because its newest message is settled."""
    scripts.redis.zadd(scripts.keys.undelivered(0), {CHAT: 1})
    commit(scripts, gate, "r1", "r2", "r3")
    undelivered = UndeliveredChats(hot, GatewayStreamWriter(hot))

    for seq in (1, 2, 3):
        undelivered.finish_soon(CHAT, Seq(seq))

    await eventually(lambda: scripts.undelivered() == [])


async def test_failed_finish_is_left_to_repair(hot: HotClient, scripts: Scripts, gate: str) -> None:
    """The failure is logged, and the chat stays listed."""
    scripts.redis.zadd(scripts.keys.undelivered(0), {CHAT: 1})
    scripts.redis.script_flush()

    UndeliveredChats(hot, GatewayStreamWriter(hot)).finish_soon(CHAT, Seq(1))
    for _ in range(5):
        await asyncio.sleep(0)
    await hot.call("PING")

    assert scripts.undelivered() == [CHAT]
