"""Inboxes, user states and chat logs, with `Inboxes` and `ChatLog`."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, Epoch, Seq, Ts, UserId
from chatserver.domain.inboxes import (
    AppendResult,
    Delivery,
    InboxEntry,
    ListedChat,
    UserChat,
    UserMarks,
)
from chatserver.domain.messages import ChatHead
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.redis import client
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.inbox import Inboxes
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, Sending, redis_settings
from tests.support.servers.processes import eventually

OTHER = ChatId("c2")


def delivery(user: UserId, upto: int, chat: ChatId = CHAT) -> Delivery:
    """Return a delivery to a user up to a seq."""
    return Delivery(user, chat, Seq(0), Seq(upto), Epoch("E1"))


def commit(scripts: Scripts, hot: HotClient, chat: ChatId, *senders: UserId) -> int:
    """Open a chat and send one message each; return the last timestamp."""
    epoch = hot.epochs[0]
    scripts.open_chat(ALICE, BOB, chat=chat, epoch=epoch)
    batch = [
        Sending(sender, f"r{n}", chat=chat, gate=f"{epoch}:1") for n, sender in enumerate(senders)
    ]
    return max(answer.ts for answer in scripts.accept(*batch, epoch=epoch))


def seqs(*numbers: int) -> list[Seq]:
    """Return numbers as seqs."""
    return [Seq(number) for number in numbers]


# inboxes


async def test_inbox_page_has_the_events_after_a_seq(hot: HotClient) -> None:
    """Messages are references, other events have a body; the oldest is first."""
    inboxes = Inboxes(hot)
    await inboxes.deliver([delivery(ALICE, 2)])
    await inboxes.append_event([ALICE], CHAT, "event ü".encode())

    everything = await inboxes.list_after(ALICE, Seq(0), 10)

    assert everything == [
        InboxEntry(Seq(1), CHAT, Seq(1), None),
        InboxEntry(Seq(2), CHAT, Seq(2), None),
        InboxEntry(Seq(3), None, Seq(0), "event ü".encode()),
    ]
    assert await inboxes.list_after(ALICE, Seq(1), 1) == everything[1:2]
    assert await inboxes.list_after(ALICE, Seq(3), 10) == []
    assert await inboxes.list_after(BOB, Seq(0), 10) == []


@pytest.mark.parametrize("partitions", [1, 64])
async def test_inbox_deliveries_to_many_users_all_arrive(redis_url: str, partitions: int) -> None:
    """Users of all partitions get their deliveries and are reported."""
    users = [UserId(f"u{n}") for n in range(50)]
    async with open_hot(redis_settings(redis_url, partitions=partitions)) as hot:
        inboxes = Inboxes(hot)
        place = hot.keys.where(hot.keys.get_partition(users[7]))
        await hot.call("HSET", place, users[7], "gw1,gw2")

        places = await inboxes.deliver([delivery(user, 3) for user in users])
        events = await inboxes.append_event(users, CHAT, b"event")

        assert {place.user for place in places} == set(users)
        assert {(place.appended, place.seq) for place in places} == {(3, 3)}
        assert {(place.user, place.seq) for place in events} == {(user, 4) for user in users}
        assert AppendResult(users[7], 1, Seq(4), ("gw1", "gw2")) in events  # type: ignore[arg-type]  # names
        found = dict(zip(users, await inboxes.list_gateways(users), strict=True))
        assert found[users[7]] == ("gw1", "gw2")
        assert found[users[8]] == ()


async def test_user_state_lists_chats_by_their_newest_activity(
    hot: HotClient, scripts: Scripts
) -> None:
    """Each chat has its newest seq and the user's marks. Sending moves the sender's read mark."""
    inboxes = Inboxes(hot)
    names = [ChatId("quiet"), OTHER, CHAT]
    await inboxes.open_user_state(
        ALICE, [ListedChat(name, Seq(0), Seq(0)) for name in names], hot.epochs[0]
    )
    chat_ts = commit(scripts, hot, CHAT, BOB, BOB, BOB)
    other_ts = commit(scripts, hot, OTHER, BOB, ALICE, ALICE, ALICE, BOB)
    await inboxes.mark(ALICE, CHAT, Seq(1), Seq(2))

    chats = await inboxes.list_chats(ALICE)

    assert chats == [
        UserChat(OTHER, *seqs(5, 4, 4), order=Ts(other_ts)),
        UserChat(CHAT, *seqs(3, 1, 2), order=Ts(chat_ts)),
        UserChat(ChatId("quiet"), *seqs(0, 0, 0), order=Ts(0)),
    ]
    assert await inboxes.find_all_chats(ALICE) == chats
    assert await inboxes.list_chats(BOB) == []
    assert await inboxes.find_all_chats(BOB) is None


async def test_user_state_lists_a_new_chat_by_the_time_of_its_event(
    hot: HotClient, scripts: Scripts
) -> None:
    """A new chat without messages is above chats with older activity."""
    inboxes = Inboxes(hot)
    await inboxes.append_event([ALICE], CHAT, b"new", is_listed=True)
    commit(scripts, hot, CHAT, BOB)
    await inboxes.append_event([ALICE], OTHER, b"new", is_listed=True)

    newest, oldest = await inboxes.list_chats(ALICE)

    assert (newest.chat, newest.top, oldest.chat, oldest.top) == (OTHER, 0, CHAT, 1)
    assert newest.order > oldest.order


async def test_user_state_has_the_moved_marks(hot: HotClient, scripts: Scripts) -> None:
    """A call that moves none returns those of the last call that did."""
    inboxes = Inboxes(hot)
    scripts.list_chat(ALICE)
    commit(scripts, hot, CHAT, BOB, BOB, BOB, BOB, BOB)

    first = await inboxes.mark(ALICE, CHAT, Seq(2), Seq(4))
    again = await inboxes.mark(ALICE, CHAT, Seq(1), Seq(4))

    assert first == UserMarks(*seqs(2, 4))
    assert again == UserMarks(*seqs(2, 4))
    assert await inboxes.get_marks(ALICE, CHAT) == UserMarks(*seqs(2, 4))


async def test_mark_beyond_the_newest_message_is_limited(hot: HotClient, scripts: Scripts) -> None:
    """A chat without messages has no mark."""
    inboxes = Inboxes(hot)
    scripts.list_chat(ALICE)
    nothing = UserMarks(*seqs(0, 0), is_open=False)
    assert await inboxes.mark(ALICE, CHAT, Seq(9), Seq(9)) == nothing
    commit(scripts, hot, CHAT, BOB, BOB)

    assert await inboxes.mark(ALICE, CHAT, Seq(9), Seq(9)) == UserMarks(*seqs(2, 2))


async def test_marks_of_a_sender_are_never_behind_their_own_message(
    hot: HotClient, scripts: Scripts
) -> None:
    """This also holds if a device of the sender marks an earlier message afterwards."""
    inboxes = Inboxes(hot)
    scripts.list_chat(ALICE)
    commit(scripts, hot, CHAT, BOB, BOB, ALICE, BOB)
    assert await inboxes.get_marks(ALICE, CHAT) == UserMarks(*seqs(3, 3))
    assert await inboxes.get_marks(BOB, CHAT) == UserMarks(*seqs(4, 4))

    assert await inboxes.mark(ALICE, CHAT, Seq(1), Seq(4)) == UserMarks(*seqs(3, 4))
    assert await inboxes.get_marks(ALICE, CHAT) == UserMarks(*seqs(3, 4))


async def test_mark_in_a_chat_of_others_is_not_found(hot: HotClient) -> None:
    """Users cannot mark a chat that they do not have."""
    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        await Inboxes(hot).mark(ALICE, CHAT, Seq(1), Seq(1))


async def test_mark_events_that_are_late_are_skipped(hot: HotClient) -> None:
    """An inbox never gets an older mark after a newer one."""
    inboxes = Inboxes(hot)

    newer = await inboxes.append_marks([ALICE, BOB], CHAT, b"new", BOB, 9)
    older = await inboxes.append_marks([ALICE, BOB], CHAT, b"old", BOB, 7)
    other = await inboxes.append_marks([ALICE, BOB], CHAT, b"hers", ALICE, 1)

    assert [place.appended for place in (*newer, *older, *other)] == [1, 1, 0, 0, 1, 1]
    assert [e.body for e in await inboxes.list_after(ALICE, Seq(0), 9)] == [b"new", b"hers"]


# logs


@pytest.fixture
def filled(hot: HotClient, scripts: Scripts) -> ChatLog:
    """The log of a chat with ten messages."""
    epoch = hot.epochs[0]
    scripts.open_chat(ALICE, BOB, epoch=epoch)
    gate = f"{epoch}:1"
    batch = [Sending(ALICE, f"r{n}", gate=gate, receiver="bob", tail=f"t{n}") for n in range(1, 11)]
    scripts.accept(*batch, epoch=epoch)
    return ChatLog(hot)


async def test_log_pages_before_and_after_a_seq(filled: ChatLog) -> None:
    """Each page is in increasing order, next to the given seq."""

    async def before(place: int | None, limit: int) -> list[int]:
        at = None if place is None else Seq(place)
        return [entry.seq for entry in await filled.list_before(CHAT, at, limit)]

    async def after(place: int, limit: int) -> list[int]:
        return [entry.seq for entry in await filled.list_after(CHAT, Seq(place), limit)]

    assert await before(None, 3) == [8, 9, 10]
    assert await before(5, 3) == [2, 3, 4]
    assert await before(3, 9) == [1, 2]
    assert await before(1, 9) == []
    assert await before(0, 9) == []
    assert await before(99, 2) == [9, 10]
    assert await after(0, 2) == [1, 2]
    assert await after(8, 9) == [9, 10]
    assert await after(10, 9) == []


LOG_READS: dict[str, tuple[Seq | int | None, ...]] = {
    "list_before": (None, 9),
    "list_after": (Seq(0), 9),
    "list_large": (Seq(0), 9),
    "list_range": (Seq(1), Seq(2)),
    "get_stored": (),
}


@pytest.mark.parametrize("read", LOG_READS)
async def test_log_of_a_later_epoch_is_not_read(
    redis_url: str, scripts: Scripts, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Sessions have no `reset` yet and would mix new entries with lost ones."""
    monkeypatch.setattr(client, "EPOCH_CHECK_S", 3600.0)  # only the read detects the loss
    async with open_hot(redis_settings(redis_url)) as hot:
        commit(scripts, hot, CHAT, ALICE)
        log = ChatLog(hot)
        assert [entry.seq for entry in await log.list_before(CHAT, None, 9)] == [1]

        scripts.redis.flushall()
        async with open_hot(redis_settings(redis_url)) as newer:
            assert newer.epochs[0] > hot.epochs[0]
            commit(scripts, newer, CHAT, ALICE, BOB)
            with pytest.raises(Unavailable, match="lost its data"):
                await getattr(log, read)(CHAT, *LOG_READS[read])


@pytest.mark.parametrize("has_new_epoch", [False, True])
async def test_inbox_of_a_later_epoch_is_not_read(
    redis_url: str, scripts: Scripts, monkeypatch: pytest.MonkeyPatch, *, has_new_epoch: bool
) -> None:
    """A session of the earlier epoch would send its events before the `reset` (guarantee P4)."""
    monkeypatch.setattr(client, "EPOCH_CHECK_S", 3600.0)  # only the read detects the loss
    async with open_hot(redis_settings(redis_url)) as hot:
        inboxes = Inboxes(hot)
        await inboxes.append_event([ALICE], CHAT, b"earlier")
        assert [entry.body for entry in await inboxes.list_after(ALICE, Seq(0), 9)] == [b"earlier"]
        known = hot.epochs[0]

        scripts.redis.flushall()
        if has_new_epoch:
            async with open_hot(redis_settings(redis_url)) as newer:
                assert newer.epochs[0] > known
        for body in (b"first", b"second"):
            await inboxes.append_event([ALICE], CHAT, body)
        with pytest.raises(Unavailable, match="lost its data"):
            await inboxes.list_after(ALICE, Seq(1), 9)

        await eventually_epoch_after(hot, known)
        assert [entry.body for entry in await inboxes.list_after(ALICE, Seq(1), 9)] == [b"second"]


async def eventually_epoch_after(hot: HotClient, epoch: Epoch) -> None:
    """Wait until the client has a later epoch."""

    async def is_later() -> bool:
        return hot.epochs[0] > epoch

    await eventually(is_later, deadline_s=30, what="the client has the later epoch")


async def test_log_range_has_the_entries_in_redis(filled: ChatLog, scripts: Scripts) -> None:
    """Each entry has the message's bytes without the receiver in front."""
    scripts.redis.xtrim(scripts.keys.log(CHAT), minid="4-0", approximate=False)

    found = await filled.list_range(CHAT, Seq(2), Seq(5))

    assert [(entry.seq, entry.tail) for entry in found] == [(4, b"t4"), (5, b"t5")]
    assert found[0].ts < found[1].ts


async def test_log_head_reports_whether_the_chat_is_open(
    filled: ChatLog, hot: HotClient, scripts: Scripts
) -> None:
    """A chat of an earlier epoch, or one that is not in Redis, is not open."""
    assert await filled.get_head(CHAT) == ChatHead(Seq(10), is_open=True)
    assert await filled.get_head(OTHER) == ChatHead(Seq(0), is_open=False)

    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", "earlier:1")

    assert await filled.get_head(CHAT) == ChatHead(Seq(10), is_open=False)


async def test_log_stored_is_the_persisted_seq(filled: ChatLog, scripts: Scripts) -> None:
    """It is zero until a message is persisted."""
    assert (await filled.get_stored(CHAT)).upto == 0
    scripts.redis.hset(scripts.keys.chat(CHAT), "stored", 7)

    assert (await filled.get_stored(CHAT)).upto == 7
    assert (await filled.get_stored(OTHER)).upto == 0
