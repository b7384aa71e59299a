"""set_online.lua: where users are online, for how long, and where their inboxes stand."""

from __future__ import annotations

from chatserver.domain.ids import GatewayId, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.presence import REFRESH_BATCH_MAX, Presence
from tests.integration.hot.support import ALICE, BOB, Scripts
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.hot.fixtures"]

ONE, TWO = GatewayId("gw1"), GatewayId("gw2")


def presence(hot: HotClient, gateway: GatewayId, ttl_s: float = 60) -> Presence:
    """The presence of one gateway."""
    return Presence(hot, gateway, ttl_s)


async def gateways_of(hot: HotClient, user: UserId) -> set[str]:
    """Return where others believe the user to be."""
    (found,) = await Inboxes(hot).list_gateways([user])
    return set(found)


async def test_presence_announced_user_is_online_there(hot: HotClient) -> None:
    """Deliveries to the user report the gateway."""
    await presence(hot, ONE).announce([ALICE])

    assert await gateways_of(hot, ALICE) == {ONE}
    assert await gateways_of(hot, BOB) == set()


async def test_presence_of_several_gateways_adds_up(hot: HotClient) -> None:
    """A user has devices on many gateways."""
    await presence(hot, ONE).announce([ALICE])
    await presence(hot, TWO).announce([ALICE])

    assert await gateways_of(hot, ALICE) == {ONE, TWO}


async def test_presence_withdrawn_is_gone_there_only(hot: HotClient) -> None:
    """The user's last session on one gateway does not affect the others."""
    await presence(hot, ONE).announce([ALICE])
    await presence(hot, TWO).announce([ALICE])

    await presence(hot, ONE).withdraw([ALICE])

    assert await gateways_of(hot, ALICE) == {TWO}


async def test_presence_all_withdrawn_leaves_no_key(hot: HotClient, scripts: Scripts) -> None:
    """An offline user costs no memory."""
    await presence(hot, ONE).announce([ALICE])

    await presence(hot, ONE).withdraw([ALICE])

    assert await gateways_of(hot, ALICE) == set()
    assert not scripts.redis.exists(scripts.keys.online(ALICE))
    assert not scripts.redis.hexists(scripts.keys.where(0), ALICE)


async def test_presence_of_one_leaves_the_others_where_they_are(hot: HotClient) -> None:
    """Users of a partition share a hash, and nothing else."""
    await presence(hot, ONE).announce([ALICE, BOB])
    await presence(hot, TWO).announce([BOB])

    await presence(hot, ONE).withdraw([ALICE])

    assert await gateways_of(hot, ALICE) == set()
    assert await gateways_of(hot, BOB) == {ONE, TWO}


async def test_presence_of_dead_gateway_ends(hot: HotClient, scripts: Scripts) -> None:
    """Presence that is not refreshed expires."""
    await presence(hot, ONE, ttl_s=0.05).announce([ALICE])

    await eventually(lambda: not scripts.redis.exists(scripts.keys.online(ALICE)), 20)


async def test_presence_of_dead_gateway_ends_beside_a_live_one(hot: HotClient) -> None:
    """The refresh of a live gateway removes the entry of a dead one."""
    await presence(hot, ONE, ttl_s=0.05).announce([ALICE])
    alive = presence(hot, TWO)

    async def only_the_live_one() -> bool:
        await alive.announce([ALICE])
        return await gateways_of(hot, ALICE) == {TWO}

    await eventually(only_the_live_one, 20)


async def test_presence_pruned_names_live_gateways_only(hot: HotClient) -> None:
    """A missing gateway stream removes the dead gateway, and no live one."""
    await presence(hot, ONE, ttl_s=0.05).announce([ALICE])
    await presence(hot, TWO).announce([ALICE])
    finder = presence(hot, GatewayId("gw3"))

    async def only_the_live_one() -> bool:
        await finder.prune([ALICE])
        return await gateways_of(hot, ALICE) == {TWO}

    await eventually(only_the_live_one, 20)


async def test_presence_ends_by_the_clock_of_redis(hot: HotClient, scripts: Scripts) -> None:
    """Gateways whose clocks differ agree on when an announcement ends (fault F33)."""

    def now_ms() -> int:
        seconds, micros = scripts.redis.time()
        return int(seconds * 1000 + micros // 1000)

    before_ms = now_ms()
    await presence(hot, ONE, ttl_s=60).announce([ALICE])
    after_ms = now_ms()

    ((_, expiry_ms),) = scripts.redis.zrange(scripts.keys.online(ALICE), 0, -1, withscores=True)
    assert before_ms <= expiry_ms - 60_000 <= after_ms
    gone_ms = scripts.redis.pexpiretime(scripts.keys.online(ALICE))
    assert before_ms <= gone_ms - 60_000 <= after_ms


async def test_presence_tells_where_the_inbox_stands(hot: HotClient, scripts: Scripts) -> None:
    """Head, oldest event, and whether the user state was loaded in this epoch."""
    epoch = hot.epoch_of(0)
    scripts.deliver(ALICE, 30, inbox_max=10)
    await Inboxes(hot).open_box(ALICE, [], epoch)

    states = await presence(hot, ONE).announce([ALICE, BOB])

    assert states == [InboxState(epoch, 30, 17, True), InboxState(epoch, 0, 1, False)]  # type: ignore[arg-type]  # plain numbers


async def test_presence_of_inbox_that_is_empty_begins_after_its_head(
    hot: HotClient, scripts: Scripts
) -> None:
    """An inbox that holds nothing has its first place above its head."""
    scripts.redis.hset(scripts.keys.seqs(0), ALICE, 7)

    (state,) = await presence(hot, ONE).announce([ALICE])

    assert (state.head, state.first) == (7, 8)


async def test_presence_box_of_earlier_epoch_is_not_known(hot: HotClient, scripts: Scripts) -> None:
    """It has to be filled again."""
    scripts.redis.hset(scripts.keys.box(ALICE), "known", "old")

    (state,) = await presence(hot, ONE).announce([ALICE])

    assert not state.is_known


async def test_presence_of_many_users_is_answered_in_their_order(hot: HotClient) -> None:
    """More users than fit into one call are announced in several."""
    users = [UserId(f"u{n}") for n in range(REFRESH_BATCH_MAX + 20)]
    inboxes = Inboxes(hot)
    for n in (0, REFRESH_BATCH_MAX - 1, REFRESH_BATCH_MAX, len(users) - 1):
        await hot.call("HSET", hot.keys.seqs(0), users[n], n + 1)

    states = await presence(hot, ONE).announce(users)

    heads = {n: state.head for n, state in enumerate(states) if state.head}
    assert heads == {0: 1, 499: 500, 500: 501, 519: 520}
    assert await inboxes.list_gateways(users[-1:]) == [(ONE,)]
