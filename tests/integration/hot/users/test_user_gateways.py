"""set_online.lua: the gateways where users are online, until when, and their inbox positions."""

from __future__ import annotations

import dataclasses

import pytest

from chatserver.domain.ids import GatewayId, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.user_gateways import REFRESH_BATCH_MAX, UserGateways
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, sends
from tests.support.servers.processes import eventually

ONE, TWO = GatewayId("gw1"), GatewayId("gw2")


def presence(hot: HotClient, gateway: GatewayId, ttl_s: float = 60) -> UserGateways:
    """Return the presence of one gateway."""
    return UserGateways(hot, gateway, ttl_s)


async def gateways_of(hot: HotClient, user: UserId) -> set[str]:
    """Return the gateways where the user is online."""
    (found,) = await Inboxes(hot).list_gateways([user])
    return set(found)


def commit(hot: HotClient, scripts: Scripts, count: int, stem: str = "r") -> None:
    """Commit messages in one call."""
    gate = f"{hot.epochs[0]}:1"
    batch = [dataclasses.replace(each, gate=gate) for each in sends(count, stem=stem)]
    scripts.accept(*batch, epoch=hot.epochs[0])


async def test_presence_of_announced_user_is_on_that_gateway(hot: HotClient) -> None:
    """Other users are not online."""
    await presence(hot, ONE).set_online([ALICE])

    assert await gateways_of(hot, ALICE) == {ONE}
    assert await gateways_of(hot, BOB) == set()


async def test_presence_includes_several_gateways(hot: HotClient) -> None:
    """A user may have devices on many gateways."""
    await presence(hot, ONE).set_online([ALICE])
    await presence(hot, TWO).set_online([ALICE])

    assert await gateways_of(hot, ALICE) == {ONE, TWO}


async def test_presence_withdrawn_on_one_gateway_stays_on_others(hot: HotClient) -> None:
    """The end of the last session on one gateway does not affect other gateways."""
    await presence(hot, ONE).set_online([ALICE])
    await presence(hot, TWO).set_online([ALICE])

    await presence(hot, ONE).set_offline([ALICE])

    assert await gateways_of(hot, ALICE) == {TWO}


async def test_presence_withdrawn_everywhere_leaves_no_key(
    hot: HotClient, scripts: Scripts
) -> None:
    """An offline user uses no memory."""
    await presence(hot, ONE).set_online([ALICE])

    await presence(hot, ONE).set_offline([ALICE])

    assert await gateways_of(hot, ALICE) == set()
    assert not scripts.redis.exists(scripts.keys.online(ALICE))
    assert not scripts.redis.hexists(scripts.keys.where(0), ALICE)


async def test_presence_of_one_user_does_not_change_others(hot: HotClient) -> None:
    """Users of a partition share only a hash."""
    await presence(hot, ONE).set_online([ALICE, BOB])
    await presence(hot, TWO).set_online([BOB])

    await presence(hot, ONE).set_offline([ALICE])

    assert await gateways_of(hot, ALICE) == set()
    assert await gateways_of(hot, BOB) == {ONE, TWO}


async def test_presence_of_dead_gateway_expires(hot: HotClient, scripts: Scripts) -> None:
    """Presence that is not refreshed expires."""
    await presence(hot, ONE, ttl_s=0.05).set_online([ALICE])

    await eventually(lambda: not scripts.redis.exists(scripts.keys.online(ALICE)), 20)


async def test_presence_of_dead_gateway_is_removed_by_a_live_one(hot: HotClient) -> None:
    """The refresh of a live gateway removes the entry of a dead one."""
    await presence(hot, ONE, ttl_s=0.05).set_online([ALICE])
    alive = presence(hot, TWO)

    async def is_only_on_the_live_gateway() -> bool:
        await alive.set_online([ALICE])
        return await gateways_of(hot, ALICE) == {TWO}

    await eventually(is_only_on_the_live_gateway, 20)


async def test_presence_after_prune_has_live_gateways_only(hot: HotClient) -> None:
    """`prune` removes the dead gateway but no live one."""
    await presence(hot, ONE, ttl_s=0.05).set_online([ALICE])
    await presence(hot, TWO).set_online([ALICE])
    finder = presence(hot, GatewayId("gw3"))

    async def is_only_on_the_live_gateway() -> bool:
        await finder.prune([ALICE])
        return await gateways_of(hot, ALICE) == {TWO}

    await eventually(is_only_on_the_live_gateway, 20)


async def test_presence_expires_by_the_clock_of_redis(hot: HotClient, scripts: Scripts) -> None:
    """Gateways with different clocks agree on the expiry."""

    def now_ms() -> int:
        seconds, micros = scripts.redis.time()
        return int(seconds * 1000 + micros // 1000)

    before_ms = now_ms()
    await presence(hot, ONE, ttl_s=60).set_online([ALICE])
    after_ms = now_ms()

    ((_, expiry_ms),) = scripts.redis.zrange(scripts.keys.online(ALICE), 0, -1, withscores=True)
    assert before_ms <= expiry_ms - 60_000 <= after_ms
    gone_ms = scripts.redis.pexpiretime(scripts.keys.online(ALICE))
    assert before_ms <= gone_ms - 60_000 <= after_ms


async def test_presence_returns_the_inbox_state(hot: HotClient, scripts: Scripts) -> None:
    """It has the head, the oldest event, and whether the user state was loaded in this epoch."""
    epoch = hot.get_epoch(0)
    scripts.deliver(ALICE, 30, inbox_max=10)
    await Inboxes(hot).open_user_state(ALICE, [], epoch)

    states = await presence(hot, ONE).set_online([ALICE, BOB])

    assert states == [InboxState(epoch, 30, 18, True), InboxState(epoch, 0, 1, False)]  # type: ignore[arg-type]  # plain numbers


async def test_presence_of_empty_inbox_starts_after_its_head(
    hot: HotClient, scripts: Scripts
) -> None:
    """The first seq of an inbox without entries is above its head, also before the first event."""
    inbox = scripts.keys.inbox(ALICE)
    scripts.redis.xadd(inbox, {CHAT: "7"}, id="0-7")
    scripts.redis.xdel(inbox, "0-7")

    states = await presence(hot, ONE).set_online([ALICE, BOB])

    assert [(state.head, state.first) for state in states] == [(7, 8), (0, 1)]


@pytest.mark.parametrize(
    ("count", "upto", "first"),
    [(1, 1, 1), (2, 2, 1), (3, 3, 1), (128, 128, 1), (128, 129, 1)],
)
async def test_presence_of_an_inbox_of_one_run_starts_at_its_first_message(
    hot: HotClient, scripts: Scripts, count: int, upto: int, first: int
) -> None:
    """The oldest entry of the stream may have several messages."""
    scripts.open_chat(ALICE, BOB, epoch=hot.epochs[0])
    commit(hot, scripts, count)
    if upto > count:
        commit(hot, scripts, upto - count, "later")

    (state,) = await presence(hot, ONE).set_online([BOB])

    assert (state.head, state.first) == (upto, first)
    entries = await Inboxes(hot).list_after(BOB, Seq(state.first - 1), 1_000)
    assert [entry.seq for entry in entries] == list(range(first, upto + 1))


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_presence_of_a_trimmed_inbox_starts_at_a_message_that_it_has(
    hot: HotClient, scripts: Scripts, missing: int
) -> None:
    """Whatever entry is the oldest: a single message, a run, or an event."""
    scripts.open_chat(ALICE, BOB, seq=40, epoch=hot.epochs[0])
    commit(hot, scripts, 5)  # 1, 2-5
    event = {"chat_id": CHAT, "body": "3-9", "is_listed": "", "mark": "", "level": 0}
    scripts.run("append_event", {**event, "inbox_max": 1000}, [{"user": BOB}])  # 6
    commit(hot, scripts, 3, "later")  # 7, 8-9
    inbox = scripts.keys.inbox(BOB)
    names = [name for name, _ in scripts.redis.xrange(inbox)]
    scripts.redis.xtrim(inbox, minid=names[missing], approximate=False)

    (state,) = await presence(hot, ONE).set_online([BOB])

    assert (state.head, state.first) == (9, {1: 2, 2: 6, 3: 7}[missing])
    entries = await Inboxes(hot).list_after(BOB, Seq(0), 1_000)
    assert [entry.seq for entry in entries] == list(range(state.first, 10))
    assert [seq for seq, _, _ in scripts.inbox(BOB)] == [entry.seq for entry in entries]


async def test_presence_of_user_state_of_earlier_epoch_is_not_known(
    hot: HotClient, scripts: Scripts
) -> None:
    """The user state must be loaded again."""
    scripts.redis.hset(scripts.keys.box(ALICE), "known", "old")

    (state,) = await presence(hot, ONE).set_online([ALICE])

    assert not state.is_known


async def test_presence_of_many_users_is_returned_in_their_order(
    hot: HotClient, scripts: Scripts
) -> None:
    """Users who do not fit into one call are announced in several."""
    users = [UserId(f"u{n}") for n in range(REFRESH_BATCH_MAX + 20)]
    inboxes = Inboxes(hot)
    for n in (0, REFRESH_BATCH_MAX - 1, REFRESH_BATCH_MAX, len(users) - 1):
        scripts.deliver(users[n], n + 1)

    states = await presence(hot, ONE).set_online(users)

    heads = {n: state.head for n, state in enumerate(states) if state.head}
    assert heads == {0: 1, 499: 500, 500: 501, 519: 520}
    assert await inboxes.list_gateways(users[-1:]) == [(ONE,)]
