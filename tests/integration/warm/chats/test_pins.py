"""Pinned messages: two rows in one transaction, beside processes that know nothing of them."""

from __future__ import annotations

import asyncio
import random

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.errors import Conflict, Unavailable
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.pins import PINS_MAX, Pins
from tests.integration.warm.schema.migration_support import acting, old_tables, up
from tests.integration.warm.support import Tables

pytest_plugins = ["tests.integration.warm.fixtures"]
__all__ = ["old_tables"]


def pins_of(tables: Tables, version: int | None = None) -> Pins:
    """Pins as a process sees them that looks at the schema anew."""
    return Pins(tables.client, acting(tables.settings, version), SystemClock())


async def count_of(tables: Tables, chat: str) -> int:
    """What the chat's own row of pins says."""
    rows = await tables.scan("directory")
    (row,) = [row for row in rows if row["SK"]["S"] == f"pins#{chat}"]
    return int(row["pins"]["N"])


async def test_pins_are_written_from_their_migration_on_by_those_who_know_them(
    old_tables: Tables,
) -> None:
    """Not before, and not by a process that acts by an older schema."""
    with pytest.raises(Unavailable, match="the tables have schema 0; `chatserver migrate up`"):
        await pins_of(old_tables).pin("c", 1, 10)
    await up(old_tables)

    assert await pins_of(old_tables).pin("c", 1, 10)
    with pytest.raises(Unavailable, match="this process acts by schema 2"):
        await pins_of(old_tables, 2).pin("c", 2, 20)
    assert [(pin.seq, pin.ts) for pin in await pins_of(old_tables).list_pins("c")] == [(1, 10)]


async def test_pins_and_their_count_are_one_whoever_races(tables: Tables) -> None:
    """Sixteen tasks pin and unpin the same few messages; answers that are lost count once."""
    tables.faults.lose_answers("TransactWriteItems", 5)
    changes = 0

    async def work(seed: int) -> None:
        nonlocal changes
        dice, pins = random.Random(seed), pins_of(tables)
        for _ in range(6):
            seq = dice.randint(1, 6)
            is_pin = dice.random() < 0.6
            is_done = await (pins.pin("c", seq, seq) if is_pin else pins.unpin("c", seq))
            changes += is_done * (1 if is_pin else -1)

    await asyncio.gather(*(work(seed) for seed in range(16)))

    left = await pins_of(tables).list_pins("c")
    assert len(left) == await count_of(tables, "c") == changes
    assert [pin.seq for pin in left] == sorted({pin.seq for pin in left})


async def test_pins_are_bounded_and_repeats_change_nothing(tables: Tables) -> None:
    """The bound is a condition of the transaction."""
    pins = pins_of(tables)
    await asyncio.gather(*(pins.pin("c", seq, seq) for seq in range(1, PINS_MAX)))
    outcomes = await asyncio.gather(
        *(pins.pin("c", seq, seq) for seq in range(100, 104)), return_exceptions=True
    )

    assert sum(outcome is True for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3
    assert not await pins.pin("c", 1, 1)
    assert len(await pins.list_pins("c")) == await count_of(tables, "c") == PINS_MAX
    assert await pins.unpin("c", 1)
    assert not await pins.unpin("c", 1)
    assert await count_of(tables, "c") == PINS_MAX - 1


async def test_chat_with_pins_is_the_same_chat_to_an_older_release(tables: Tables) -> None:
    """What reads members and chats does not reach behind the prefix."""
    old = Directory(tables.client, acting(tables.settings, 0))
    chat = await old.create_group("c", "alice", ["bob"], "Team", 1.0)

    await pins_of(tables).pin("c", 1, 1)

    assert await old.get_chat("c") == chat
    stored, members = await old.get_chat_with_members("c")
    assert stored == chat
    assert [member.user for member in members] == ["alice", "bob"]
    page = await old.list_memberships("bob", limit=10)
    assert [membership.chat.chat for membership in page.items] == ["c"]
