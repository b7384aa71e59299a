"""Audiences: members of chats, read once for concurrent callers and cached within an epoch."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats import audience_cache as audience
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.resp_encoding import pack
from tests.integration.hot.support import ALICE, BOB, CAROL, CHAT, Scripts, Sending, redis_settings
from tests.support.servers.processes import StartRedis, eventually, redis_url_of


class Loader:
    """Loads chats in place of the warm tier, and counts its calls."""

    def __init__(self, hot: HotClient, *users: UserId, kind: str = "group") -> None:
        self.calls = 0
        self.error: Exception | None = None
        self._hot = hot
        self._users = users
        self._kind = kind

    async def __call__(self, chat: ChatId) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        members = {user: ("member", n) for n, user in enumerate(self._users)}
        await HotChatWriter(self._hot).open_chat(chat, self._kind, "Näme", 3, members, (0, 0), [])


async def test_audience_of_chat_that_is_not_open_is_loaded_first(hot: HotClient) -> None:
    """Members, kind, name and chat version are those in Redis."""
    load = Loader(hot, ALICE, BOB)
    found = await Audiences(hot, load).get(CHAT)

    assert load.calls == 1
    assert dict(found.users) == {ALICE: 0, BOB: 0}
    assert (found.kind, found.name, found.gate) == ("group", "Näme", f"{hot.epochs[0]}:3")
    assert found.inline_users == (ALICE, BOB)
    assert (found.top, found.done) == (0, 0)


async def test_audience_has_encoded_keys_and_arguments_of_a_commit(hot: HotClient) -> None:
    """Keys and arguments that all messages of the chat share are encoded once."""
    found = await Audiences(hot, Loader(hot, ALICE, BOB)).get(CHAT)

    names = ["chat:c1", "members:c1", "log:c1"]
    names += ["inbox:alice", "inbox:bob"]
    keys = [f"{{p0}}:{name}".encode() for name in names]
    assert (found.keys_packed, found.keys_count) == (pack(*keys), 5)
    assert found.args_packed == pack(b"c1", found.gate.encode(), b"2")
    assert found.sender_packed == {ALICE: pack(b"alice", b"1"), BOB: pack(b"bob", b"1")}


async def test_audience_of_open_chat_is_not_loaded(hot: HotClient) -> None:
    """It is read from Redis."""
    load = Loader(hot, ALICE, BOB)
    await load(CHAT)

    await Audiences(hot, load).get(CHAT)

    assert load.calls == 1


async def test_audience_of_concurrent_callers_is_read_once(hot: HotClient) -> None:
    """A burst of reconnects does not load a chat a thousand times."""
    load = Loader(hot, ALICE, BOB)
    audiences = Audiences(hot, load)

    found = await asyncio.gather(*(audiences.get(CHAT) for _ in range(100)))

    assert load.calls == 1
    assert len({id(each) for each in found}) == 1
    assert audiences.find(CHAT) is found[0]


async def test_audience_caller_that_is_cancelled_does_not_stop_the_others(hot: HotClient) -> None:
    """The read does not belong to the first caller."""
    audiences = Audiences(hot, Loader(hot, ALICE, BOB))
    first, second = (asyncio.create_task(audiences.get(CHAT)) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()

    assert set((await second).users) == {ALICE, BOB}


async def test_audience_of_direct_chat_has_the_receiver(hot: HotClient) -> None:
    """The receiver is stored with each message."""
    found = await Audiences(hot, Loader(hot, ALICE, BOB, kind="direct")).get(CHAT)

    assert found.receiver_of == {ALICE: BOB, BOB: ALICE}
    assert found.prefix_of == {ALICE: b"bob\n", BOB: b"alice\n"}


async def test_audience_floors_are_the_load_or_the_join(hot: HotClient, scripts: Scripts) -> None:
    """Entries from before the load in this epoch or before the join are not delivered."""
    scripts.open_chat(ALICE, BOB, epoch=hot.epochs[0], seq=10)
    scripts.redis.hset(scripts.keys.members(CHAT), BOB, "member:15")

    found = await Audiences(hot, Loader(hot)).get(CHAT)

    assert dict(found.users) == {ALICE: 10, BOB: 14}
    assert found.joined == {ALICE: 0, BOB: 15}
    assert (found.top, found.done) == (10, 10)


async def test_audience_of_chat_with_a_pending_fan_out_has_the_plain_version(
    hot: HotClient, scripts: Scripts
) -> None:
    """The version matches again once the fan-out is finished."""
    epoch = hot.epochs[0]
    scripts.open_chat(ALICE, BOB, epoch=epoch)
    scripts.accept(Sending(ALICE, "r", gate=f"{epoch}:0"), epoch=epoch)

    found = await Audiences(hot, Loader(hot)).get(CHAT)

    assert found.gate == f"{epoch}:1"
    assert (found.top, found.done) == (1, 0)


async def test_audience_read_with_get_fresh_does_not_join_a_pending_read(
    hot: HotClient, scripts: Scripts
) -> None:
    """The pending read may be older than the call, so a fan-out would repeat entries."""
    epoch, is_loading, is_released = hot.epochs[0], asyncio.Event(), asyncio.Event()

    async def load(_: ChatId) -> None:
        is_loading.set()
        await is_released.wait()

    audiences = Audiences(hot, load)
    early = asyncio.create_task(audiences.get(CHAT))
    await is_loading.wait()
    scripts.open_chat(ALICE, BOB, epoch=epoch)
    scripts.accept(Sending(ALICE, "r", gate=f"{epoch}:1"), epoch=epoch)

    fresh = await asyncio.wait_for(audiences.get_fresh(CHAT), 30)

    assert not early.done()
    assert (fresh.top, fresh.done) == (1, 1)
    assert audiences.find(CHAT) is fresh
    is_released.set()
    await early


async def test_audience_with_members_in_other_partitions_has_no_inline_users(
    redis_url: str,
) -> None:
    """The commit delivers to all members or to none, and cannot write to other partitions."""
    async with open_hot(redis_settings(redis_url, partitions=64)) as hot:
        found = await Audiences(hot, Loader(hot, ALICE, BOB)).get(CHAT)

        assert found.inline_users == ()
        assert found.keys_count == 3
        assert found.args_packed.endswith(pack(b"0"))
        assert set(found.users) == {ALICE, BOB}


async def test_audience_of_chat_that_does_not_exist_is_not_found(hot: HotClient) -> None:
    """The error is the same as for chats of other users."""
    load = Loader(hot)
    load.error = NotFound("chat c1: does not exist")

    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        await Audiences(hot, load).get(CHAT)


async def test_audience_that_could_not_be_loaded_is_loaded_again(hot: HotClient) -> None:
    """Failures are not cached."""
    load = Loader(hot, ALICE)
    load.error = Unavailable("warm tier")
    audiences = Audiences(hot, load)
    with pytest.raises(Unavailable):
        await audiences.get(CHAT)

    load.error = None

    assert set((await audiences.get(CHAT)).users) == {ALICE}


async def test_audience_of_a_chat_that_stays_closed_is_unavailable(hot: HotClient) -> None:
    """If the loader loads nothing, it is not called forever."""
    calls = 0

    async def load_nothing(_: ChatId) -> None:
        nonlocal calls
        calls += 1

    with pytest.raises(Unavailable, match="could not be loaded"):
        await Audiences(hot, load_nothing).get(CHAT)
    assert calls < 5


async def test_audience_is_for_members_only(hot: HotClient) -> None:
    """A non-member gets the same error as for a chat that does not exist (guarantee P7)."""
    audiences = Audiences(hot, Loader(hot, ALICE, BOB))

    assert (await audiences.get_for_member(CHAT, ALICE)).chat == CHAT
    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        await audiences.get_for_member(CHAT, CAROL)


async def test_audience_cache_is_bounded(hot: HotClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audience that was loaded first is evicted."""
    monkeypatch.setattr(audience, "CACHE_MAX", 3)
    audiences = Audiences(hot, Loader(hot, ALICE))
    chats = [ChatId(f"c{n}") for n in range(5)]

    for chat in chats:
        await audiences.get(chat)

    assert [audiences.find(chat) is not None for chat in chats] == [False, False, True, True, True]


async def test_audience_that_was_dropped_is_read_again(hot: HotClient, scripts: Scripts) -> None:
    """An invalidated audience is not used again."""
    audiences = Audiences(hot, Loader(hot, ALICE, BOB))
    await audiences.get(CHAT)
    scripts.redis.hset(scripts.keys.members(CHAT), CAROL, "member:0")

    audiences.drop(CHAT)

    assert audiences.find(CHAT) is None
    assert CAROL in (await audiences.get(CHAT)).users


async def test_audience_of_an_earlier_epoch_is_not_used(start_redis: StartRedis) -> None:
    """Redis may have lost data, so the chat is loaded again."""
    server = start_redis("always")
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        load = Loader(hot, ALICE)
        audiences = Audiences(hot, load)
        before = (await audiences.get(CHAT)).epoch

        server.kill()
        server.start()
        await eventually(lambda: hot.is_up and hot.epochs[0] != before)

        assert audiences.find(CHAT) is None
        assert (await audiences.get(CHAT)).epoch == hot.epochs[0]
        assert load.calls == 2


async def test_members_of_an_evicted_chat_are_found(hot: HotClient) -> None:
    """A chat may be evicted after its audience was read; its members stay members."""
    load = Loader(hot, ALICE, BOB)
    audiences = Audiences(hot, load)
    await audiences.get(CHAT)
    await hot.call("DEL", hot.keys.chat(CHAT), hot.keys.members(CHAT))

    found = await audiences.find_members(CHAT, [BOB, CAROL])

    assert (found, load.calls) == ({BOB: 1}, 2)


async def test_audience_of_large_chat_does_not_read_its_members(
    hot: HotClient, scripts: Scripts
) -> None:
    """There may be 100,000 members. A lookup of one member returns that member."""
    members = {user: ("member", n) for n, user in enumerate((ALICE, BOB), 1)}
    await HotChatWriter(hot).open_chat(CHAT, "group", None, 3, members, (0, 0), [], large=2)
    audiences = Audiences(hot, load_chat=None)  # type: ignore[arg-type]  # it is open

    found = await audiences.get(CHAT)
    assert (found.is_large, dict(found.users), dict(found.sender_packed)) == (True, {}, {})
    assert dict((await audiences.get_for_member(CHAT, BOB)).joined) == {BOB: 2}
    with pytest.raises(NotFound):
        await audiences.get_for_member(CHAT, CAROL)

    scripts.redis.hset(scripts.keys.chat(CHAT), "large", "0")
    assert set((await audiences.get_fresh(CHAT)).users) == {ALICE, BOB}
