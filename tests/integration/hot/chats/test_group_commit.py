"""Group commit: drafts of one tick share a call, keep their order, and each has one outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import signal

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.messages import Audience, ChatNotLoaded, CommitOutcome, PendingDraft
from chatserver.errors import Overloaded, Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.resp_encoding import pack
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec
from tests.integration.hot.chats.group_commit_support import (
    GATEWAY,
    OTHER,
    Outcome,
    Sender,
    backlog_of,
    open_chat,
    open_sender,
)
from tests.integration.hot.support import ALICE, BOB, CAROL, CHAT, redis_settings
from tests.support.servers.processes import Server, StartRedis, eventually, redis_url_of
from tests.support.servers.tcp_proxy import TcpProxy


async def fill_backlog(hot: HotClient, count: int) -> None:
    """Add entries to the backlog, as gateways do while the persist worker is down."""
    await hot.transaction(
        *[("XADD", hot.keys.backlog(0), "*", "c", CHAT, "u", ALICE, "r", 1, "d", 1)] * count
    )


# batches


async def test_group_commit_of_one_tick_is_one_call(redis_url: str) -> None:
    """A hundred sends need one script call."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)

        for number in range(100):
            sender.send(f"r{number}", team)
        outcomes = await sender.wait_for_outcomes(100)

        assert [outcome.seq for outcome in outcomes] == list(range(1, 101))
        (entry,) = await backlog_of(sender.hot)
        assert entry.gateway == GATEWAY
        assert [message.seq for message in entry.messages] == list(range(1, 101))


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BATCH_MAX": 16})
async def test_group_commit_of_more_than_a_batch_is_several_calls_in_order(redis_url: str) -> None:
    """No call has more drafts than the limit."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)

        for number in range(100):
            sender.send(f"r{number}", team)
        await sender.wait_for_outcomes(100)

        sizes = [entry.size for entry in await backlog_of(sender.hot)]
        assert sizes == [16] * 6 + [4]
        assert sender.order == [f"r{number}" for number in range(100)]
        for number in range(100):
            assert sender.places[f"r{number}"] == {ALICE: number + 1, BOB: number + 1}


async def test_group_commit_single_message_is_committed_at_once(redis_url: str) -> None:
    """An idle gateway commits a message without waiting for a timer or other messages."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)

        sender.send("r1", team)
        await asyncio.sleep(0)

        assert await sender.hot.call("PING") == b"PONG"
        assert sender.outcomes["r1"].kind == "committed"


async def test_group_commit_next_call_includes_messages_that_arrive_during_pushes(
    redis_url: str,
) -> None:
    """The next call is sent one tick after a reply and includes messages that arrive meanwhile."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        loop = asyncio.get_running_loop()

        def send_after_poll(outcome: Outcome) -> None:
            if outcome.ref == "r1":
                loop.call_soon(lambda: loop.call_soon(sender.send, "r3", team))

        sender.on_outcome = send_after_poll
        sender.send("r1", team)
        await asyncio.sleep(0)  # r1 is in flight
        sender.send("r2", team)
        await sender.wait_for_outcomes(3)

        sizes = [entry.size for entry in await backlog_of(sender.hot)]
        assert sizes == [1, 2]


async def test_group_commit_keeps_the_order_of_thousands_over_many_ticks(redis_url: str) -> None:
    """Messages to a chat get increasing seqs in the order of submission."""
    async with open_sender(redis_url, inbox_max=5_000, log_max=5_000) as sender:
        chats = [await open_chat(sender.hot, chat, ALICE, BOB, CAROL) for chat in (CHAT, OTHER)]
        rng = random.Random(3)
        sent: dict[ChatId, list[str]] = {CHAT: [], OTHER: []}

        for number in range(3_000):
            audience = rng.choice(chats)
            sent[audience.chat].append(f"r{number}")
            sender.send(f"r{number}", audience, rng.choice((ALICE, BOB, CAROL)))
            if rng.random() < 0.2:
                await asyncio.sleep(0)
        await sender.wait_for_outcomes(3_000)

        for refs in sent.values():
            assert [sender.outcomes[ref].seq for ref in refs] == list(range(1, len(refs) + 1))
        for user in (ALICE, BOB, CAROL):
            inbox = await Inboxes(sender.hot).list_after(user, Seq(0), 5_000)
            reported = {
                (audience.chat, sender.outcomes[ref].seq): sender.places[ref][user]
                for audience in chats
                for ref in sent[audience.chat]
            }
            assert {(entry.chat, entry.cs): entry.seq for entry in inbox} == reported


async def test_group_commit_has_an_outcome_for_each_draft_of_a_mixed_batch(redis_url: str) -> None:
    """Every draft has its own outcome, independent of the others in the batch."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        third = await open_chat(sender.hot, ChatId("c3"), ALICE, BOB)
        old_gate = f"{third.epoch}:0".encode()
        stale = dataclasses.replace(third, args_packed=pack(b"c3", old_gate, b"2"))
        closed = dataclasses.replace(
            team,
            chat=OTHER,
            keys_packed=team.keys_packed.replace(b":c1", b":c2"),
            args_packed=pack(OTHER.encode(), team.gate.encode(), b"2"),
        )
        sender.send("first", team)
        await sender.wait_for_outcomes(1)

        sender.send("r1", team)
        sender.send("r2", team, CAROL)
        sender.send("r3", closed)
        sender.send("r4", team, BOB)
        sender.send("r5", stale)
        sender.send("r6", team)
        await sender.wait_for_outcomes(7)
        sender.send("r7", third)
        await sender.wait_for_outcomes(8)
        sender.outcomes.pop("first")
        sender.send("first", team)
        await sender.wait_for_outcomes(8)

        kinds = {ref: outcome.kind for ref, outcome in sender.outcomes.items()}
        assert kinds == {
            "r1": "committed",
            "r2": "not member",
            "r3": "closed",
            "r4": "committed",
            "r5": "undelivered",
            "r6": "committed",
            "r7": "undelivered",  # after a pending fan-out
            "first": "known",
        }
        assert [sender.places[ref][BOB] for ref in ("r1", "r4", "r6")] == [2, 3, 4]


async def test_group_commit_with_audiences_of_two_versions_uses_the_newest(redis_url: str) -> None:
    """Drafts of a chat share a call. The newest audience has the current members."""
    async with open_sender(redis_url) as sender:
        fresh = await open_chat(sender.hot, CHAT, ALICE, BOB)
        stale = dataclasses.replace(
            fresh,
            args_packed=pack(CHAT.encode(), b"old:1", b"2"),
            sender_packed={CAROL: pack(CAROL.encode(), b"1")},
        )

        sender.send("r1", stale)
        sender.send("r2", stale, CAROL)
        sender.send("r3", fresh)
        outcomes = await sender.wait_for_outcomes(3)

        kinds = {outcome.ref: outcome.kind for outcome in outcomes}
        assert kinds == {"r1": "committed", "r2": "not member", "r3": "committed"}
        assert sender.places["r3"] == {ALICE: 2, BOB: 2}


async def test_group_commit_members_in_other_partitions_are_left_to_a_fan_out(
    redis_url: str,
) -> None:
    """The commit delivers only to users in the chat's own partition."""
    async with open_sender(redis_url, partitions=64) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        assert team.inline_users == ()

        sender.send("r1", team)
        (outcome,) = await sender.wait_for_outcomes(1)

        assert (outcome.kind, outcome.seq) == ("undelivered", 1)


# limits


@pytest.mark.constants({"chatserver.hot.chats.group_commit.QUEUE_MAX": 10})
async def test_group_commit_with_a_full_queue_is_overloaded(redis_url: str) -> None:
    """Queued drafts get outcomes, and then there is space again."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        for number in range(10):
            sender.send(f"r{number}", team)

        with pytest.raises(Overloaded):
            sender.send("one too many", team)
        await sender.wait_for_outcomes(10)
        sender.send("r10", team)

        outcomes = await sender.wait_for_outcomes(11)
        assert {outcome.kind for outcome in outcomes} == {"committed"}
        assert outcomes[-1].seq == 11


async def test_group_commit_with_a_full_backlog_is_overloaded(redis_url: str) -> None:
    """While the warm tier is down, messages wait up to a limit; then sends are refused."""
    async with open_sender(redis_url, backlog_max=1000) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        await fill_backlog(sender.hot, 1000)

        sender.send("r1", team)
        (outcome,) = await sender.wait_for_outcomes(1)

        assert isinstance(outcome.error, Overloaded)
        assert "backlog is full" in outcome.error.message


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BACKLOG_CHECK_S": 0.05})
async def test_group_commit_notices_a_full_backlog_after_the_check_interval(redis_url: str) -> None:
    """Most calls do not ask for the length of the backlog; at least one per interval does."""
    async with open_sender(redis_url, backlog_max=1000) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        sender.send("first", team)
        await sender.wait_for_outcomes(1)
        await fill_backlog(sender.hot, 1000)

        async def is_refused() -> bool:
            count = len(sender.outcomes)
            sender.send(f"r{count}", team)
            return isinstance((await sender.wait_for_outcomes(count + 1))[-1].error, Overloaded)

        await eventually(is_refused)


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BACKLOG_CHECK_S": 3600.0})
async def test_group_commit_checks_the_backlog_once_per_interval_and_while_it_is_full(
    redis_url: str,
) -> None:
    """Sends continue with the first call after there is space, without waiting for an interval."""
    async with open_sender(redis_url, backlog_max=1000) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        await fill_backlog(sender.hot, 1000)
        sender.send("r1", team)
        await sender.wait_for_outcomes(1)
        sender.send("r2", team)
        await sender.wait_for_outcomes(2)
        await sender.hot.call("DEL", sender.hot.keys.backlog(0))
        sender.send("r3", team)
        await sender.wait_for_outcomes(3)
        await fill_backlog(sender.hot, 1000)
        sender.send("r4", team)
        outcomes = await sender.wait_for_outcomes(4)

        assert [each.kind for each in outcomes] == ["failed", "failed", "committed", "committed"]
        assert [each.seq for each in outcomes] == [0, 0, 1, 2]


async def test_group_commit_with_a_full_backlog_acks_a_known_ref(redis_url: str) -> None:
    """The message of a retry is committed; the retry adds nothing."""
    async with open_sender(redis_url, backlog_max=1000) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        sender.send("r1", team)
        await sender.wait_for_outcomes(1)
        await fill_backlog(sender.hot, 1000)
        other = Sender(sender.hot)  # as on another gateway, which checks in its first call

        other.send("r1", team)
        other.send("r2", team)
        outcomes = await other.wait_for_outcomes(2)

        assert [(each.kind, each.seq) for each in outcomes] == [("known", 1), ("failed", 0)]
        assert isinstance(outcomes[1].error, Overloaded)


async def test_group_commit_of_full_redis_is_overloaded_and_nothing_is_committed(
    start_redis: StartRedis,
) -> None:
    """If memory runs out within a batch, no part of it is committed."""
    server = start_redis("no")
    async with open_sender(redis_url_of(server)) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        await sender.hot.call("CONFIG", "SET", "maxmemory", 1)

        for number in range(5):
            sender.send(f"r{number}", team)
        outcomes = await sender.wait_for_outcomes(5)

        assert {type(outcome.error) for outcome in outcomes} == {Overloaded}
        await sender.hot.call("CONFIG", "SET", "maxmemory", 0)
        assert await sender.hot.call("XLEN", sender.hot.keys.log(CHAT)) == 0
        sender.send("after", team)
        assert (await sender.wait_for_outcomes(6))[-1].seq == 1


# lost scripts and broken connections


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BATCH_MAX": 8})
async def test_group_commit_with_flushed_scripts_loses_and_reorders_nothing(
    redis_url: str,
) -> None:
    """The script is loaded again without an error, and the order is kept."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        rng = random.Random(5)

        for number in range(1_000):
            sender.send(f"r{number}", team)
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            if rng.random() < 0.05:
                sender.hot.send(lambda _: None, "SCRIPT", "FLUSH")
        outcomes = await sender.wait_for_outcomes(1_000)

        assert {outcome.kind for outcome in outcomes} == {"committed"}
        seqs = [sender.outcomes[f"r{number}"].seq for number in range(1_000)]
        assert seqs == list(range(1, 1_001))


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BATCH_MAX": 4})
async def test_group_commit_over_breaking_connections_is_exact_after_retries(
    redis_server: Server, redis_url: str
) -> None:
    """Drafts with an unknown outcome are retried with the same ref, and get their outcome.

    Every message is in the log once, wherever the connection broke.
    """
    async with TcpProxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with open_sender(url) as sender:
            team = await open_chat(sender.hot, CHAT, ALICE, BOB)
            waiting = [f"r{number}" for number in range(200)]
            attempts = 0
            while waiting:
                attempts += 1
                await eventually(lambda: sender.hot.is_up)
                sender.outcomes.clear()
                sender.order.clear()
                if attempts < 10:
                    proxy.tear(after_bytes=300 * attempts)
                for ref in waiting:
                    sender.send(ref, team)
                outcomes = await sender.wait_for_outcomes(len(waiting))
                assert all(isinstance(o.error, Unavailable | None) for o in outcomes)
                waiting = [o.ref for o in outcomes if o.kind == "failed"]
                proxy.end_faults()

            assert attempts > 3
            log = await ChatLog(sender.hot).list_range(CHAT, Seq(1), Seq(1_000))
            refs = [codec.decode_message(codec.join_message(e.seq, e.ts, e.tail)).ref for e in log]
            assert sorted(refs) == sorted(f"r{number}" for number in range(200))
            assert [entry.seq for entry in log] == list(range(1, 201))


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BATCH_MAX": 8})
async def test_group_commit_without_redis_fails_all_queued_drafts_in_order(
    start_redis: StartRedis,
) -> None:
    """Every draft that was queued when Redis stopped gets an outcome, in order (P9)."""
    server = start_redis("no")
    async with open_sender(redis_url_of(server)) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        server.send_signal(signal.SIGSTOP)
        for number in range(100):
            sender.send(f"r{number}", team)
        await asyncio.sleep(0)

        server.kill()
        outcomes = await sender.wait_for_outcomes(100)

        assert sender.order == [f"r{number}" for number in range(100)]
        assert {type(outcome.error) for outcome in outcomes} == {Unavailable}


async def test_group_commit_after_a_restart_of_redis_finds_the_chat_closed(
    start_redis: StartRedis,
) -> None:
    """An audience of an earlier epoch is invalid in the new one."""
    server = start_redis("always")
    async with open_sender(redis_url_of(server)) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        sender.send("r1", team)
        await sender.wait_for_outcomes(1)
        before = sender.hot.epochs[0]

        server.kill()
        server.start()
        await eventually(lambda: sender.hot.is_up and sender.hot.epochs[0] != before)
        sender.send("r2", team)
        outcomes = await sender.wait_for_outcomes(2)

        assert outcomes[-1].kind == "closed"


async def test_group_commit_drafts_with_another_retention_are_returned(redis_url: str) -> None:
    """All drafts of the chat are returned, so that their order is kept."""
    async with open_sender(redis_url) as sender:
        team = await open_chat(sender.hot, CHAT, ALICE, BOB)
        before = dataclasses.replace(team, retention_s=60)

        sender.send("r1", before)
        sender.send("r2", team)
        sender.send("r3", team)
        outcomes = await sender.wait_for_outcomes(3)

        assert [(each.kind, each.ref) for each in outcomes] == [
            ("closed", "r1"),
            ("closed", "r2"),
            ("closed", "r3"),
        ]
        assert await backlog_of(sender.hot) == []


class OpeningSender(Sender):
    """A sender whose chat is opened by another task as soon as it was found closed."""

    opening: asyncio.Task[Audience] | None = None

    def _handle_outcome(self, draft: PendingDraft, outcome: CommitOutcome) -> None:
        super()._handle_outcome(draft, outcome)
        if isinstance(outcome, ChatNotLoaded) and self.opening is None:
            # This is sent before the next batch on the same connection, so Redis runs it first.
            self.opening = asyncio.create_task(open_chat(self.hot, draft.chat, ALICE, BOB))


@pytest.mark.constants({"chatserver.hot.chats.group_commit.BATCH_MAX": 1})
async def test_group_commit_chat_opened_between_two_batches_keeps_the_order_of_its_drafts(
    redis_url: str,
) -> None:
    """Drafts after a returned draft are returned too."""
    async with open_hot(redis_settings(redis_url)) as hot:
        sender = OpeningSender(hot)
        team = await open_chat(hot, CHAT, ALICE, BOB)
        closed = dataclasses.replace(
            team,
            chat=OTHER,
            keys_packed=team.keys_packed.replace(b":c1", b":c2"),
            args_packed=team.args_packed.replace(b"c1", b"c2"),
        )

        sender.send("r1", closed)
        sender.send("r2", closed)
        sender.send("r3", team)
        await sender.wait_for_outcomes(3)
        assert sender.opening is not None
        sender.send("r4", await sender.opening)
        outcomes = await sender.wait_for_outcomes(4)

        kinds = {each.ref: each.kind for each in outcomes}
        assert kinds == {
            "r1": "closed",
            "r2": "closed",
            "r3": "committed",
            "r4": "committed",
        }
