"""Clock steps while a worker runs: order, leases and eviction are not affected."""

from __future__ import annotations

from chatserver.container.storage import StorageContainer
from chatserver.hot.chats.eviction import Eviction
from tests.integration.workers.support import (
    ALICE,
    BOB,
    Gateway,
    bodies,
    is_drained,
    make_group,
    persister_of,
    running,
    stored_of,
    with_attributes,
)
from tests.support.fake_clocks import ShiftedClock
from tests.support.servers.processes import eventually

STEPS_S = (0, -3_600, 7_200, -86_400)


async def test_clock_steps_change_neither_order_nor_lease(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Messages keep their order and seqs and are stored once. The lease is never lost."""
    clock = ShiftedClock()
    stepped = with_attributes(container, clock=clock)
    team = await make_group(stepped, ALICE, BOB)
    lease = container.hot.keys.lease(0, "persist")
    tokens = set()

    async with running(persister_of(stepped).run()):
        for offset_s in STEPS_S:
            clock.wall_s = offset_s
            await gateway.send(team, f"at {offset_s}")
            await eventually(lambda: is_drained(container))
            tokens.add(await container.hot.call("HGET", lease, "token"))

    stored = await stored_of(container, team.chat)
    assert bodies(stored) == [f"at {offset_s}" for offset_s in STEPS_S]
    assert [message.seq for message in stored] == [1, 2, 3, 4]
    stamps = [message.ts for message in stored]
    assert stamps == sorted(set(stamps))
    assert len(tokens) == 1, "another holder took the lease"


async def test_clock_ahead_evicts_no_chat_too_early(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The idle time of a chat is measured with the clock of Redis."""
    team = await make_group(container, ALICE, BOB)
    async with running(persister_of(container).run()):
        await gateway.send(team, "here")
        await eventually(lambda: is_drained(container))
    clock = ShiftedClock()
    clock.wall_s = 10.0 * container.hot.settings.chat_idle_s

    assert await Eviction(container.hot).evict_idle(0, clock.time()) == 0

    assert await container.hot.call("EXISTS", container.hot.keys.chat(team.chat)) == 1
