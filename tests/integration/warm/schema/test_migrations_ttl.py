"""The table's TTL comes to read another attribute, while old and new servers write, dying anywhere.

The server of the tests knows TTL as a setting and removes nothing by it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chatserver.config import Archive
from chatserver.errors import Unavailable
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.store import MessageRepository
from chatserver.warm.messages.ttl import ItemRetention, mend_ttl
from chatserver.warm.schema import versions
from chatserver.warm.schema.active_version import SchemaRows
from chatserver.warm.schema.migrations.runner import Options
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.schema.migration_support import (
    SMALL,
    JumpClock,
    Writer,
    acting,
    old_tables,
    scan_all,
    up,
    up_with_deaths,
    writing,
)
from tests.integration.warm.schema.test_migrations import CONTRACT
from tests.integration.warm.support import START_TS, FixedClock, Tables, batch, message, reply

pytest_plugins = ["tests.integration.warm.fixtures"]
__all__ = ["old_tables"]

ENDS = 2_000_000_000
BUSY = "ValidationException: Time to live has been modified multiple times within a fixed interval"


async def ttl_of(tables: Tables) -> dict[str, str]:
    """What the TTL of `messages` is."""
    name = {"TableName": MESSAGES.name_in(tables.settings)}
    answer = await tables.client.call("describe_time_to_live", name)
    described: dict[str, str] = answer["TimeToLiveDescription"]
    return described


async def put_expiring(tables: Tables, version: int | None, chat: str, count: int) -> None:
    """Write messages that end, as a release of a schema does."""
    messages = MessageRepository(tables.client, acting(tables.settings, version))
    made = [message(seq, chat, expires_at=ENDS + seq) for seq in range(1, count + 1)]
    await messages.put_batch(batch(*made), 20)


async def up_to_ttl_filled(tables: Tables) -> None:
    """Do all up to the contract that switches TTL."""
    await up(tables)
    await up(tables, CONTRACT)
    version, _ = await up(tables)
    assert version == versions.TTL_ONLY - 1


async def test_ttl_is_switched_by_runs_that_die_anywhere_and_each_item_that_ends_has_it(
    old_tables: Tables,
) -> None:
    """Also what an old server writes behind the fill; what does not end is left alone."""
    dice, clock = random.Random(1), JumpClock()
    old, new = Writer(old_tables, 1, "old", dice), Writer(old_tables, None, "new", dice)
    await up(old_tables)
    await up(old_tables, CONTRACT)
    await old.put(30)
    await new.put(30)
    await put_expiring(old_tables, 1, "before", 20)
    async with writing(old, new):
        deaths = await up_with_deaths(old_tables, SMALL, clock, dice)
    await put_expiring(old_tables, 1, "behind", 20)
    before = await ttl_of(old_tables)

    async with writing(new):
        deaths += await up_with_deaths(old_tables, CONTRACT, clock, dice)

    assert deaths > 2
    assert before["AttributeName"] == "expires_at"
    assert await ttl_of(old_tables) == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
    rows = await scan_all(old_tables)
    assert all(mend_ttl(row) is None for row in rows)
    ending = [row for row in rows if "expires_at" in row]
    assert len(ending) == 40
    assert all(row["ttl"] == row["expires_at"] for row in ending)
    assert sum("ttl" in row for row in rows) == 40
    state = await SchemaRows(old_tables.client, old_tables.settings).get_state()
    assert (state.version, state.oldest) == (versions.TTL_ONLY, versions.TTL)


async def test_switch_waits_while_aws_has_it_changed_too_lately(old_tables: Tables) -> None:
    """Off takes its time, and the second change is refused until it is through."""
    await up_to_ttl_filled(old_tables)

    def state(status: str) -> dict[str, Any]:
        described = {"TimeToLiveStatus": status, "AttributeName": "expires_at"}
        return {"TimeToLiveDescription": described}

    busy = (400, {"__type": "com.amazon.coral.validate#ValidationException", "message": BUSY})
    slow = [reply(state("DISABLING"))] * 2
    old_tables.faults.add("DescribeTimeToLive", lambda _: None, *slow)
    old_tables.faults.add("UpdateTimeToLive", lambda _: None, lambda _: busy)
    old_tables.faults.requests.clear()

    version, lines = await up(old_tables, CONTRACT)

    asked = [
        (
            body["TimeToLiveSpecification"]["AttributeName"],
            body["TimeToLiveSpecification"]["Enabled"],
        )
        for body in old_tables.faults.bodies("UpdateTimeToLive")
    ]
    assert version == versions.TTL_ONLY
    assert asked == [("expires_at", False), ("ttl", True), ("ttl", True)]
    assert any(line.endswith("TTL reads ttl") for line in lines.said)


async def test_switch_that_is_not_done_in_time_is_gone_on_with(old_tables: Tables) -> None:
    """The next run finds what there is; meanwhile `tables apply` has nothing against it."""
    await up_to_ttl_filled(old_tables)
    name = MESSAGES.name_in(old_tables.settings)
    off = {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLING", "AttributeName": "ttl"}}
    old_tables.faults.add("DescribeTimeToLive", lambda _: None, *[reply(off)] * 20)
    hasty = Options(segments=3, is_contract=True, index_timeout_s=0.5)

    with pytest.raises(Unavailable, match=f"7 ttl-only: {name}"):
        await up(old_tables, hasty)
    old_tables.faults._faults.clear()
    assert (await ttl_of(old_tables))["TimeToLiveStatus"] == "DISABLED"
    version, _ = await up(old_tables, CONTRACT)

    assert version == versions.TTL_ONLY
    assert (await ttl_of(old_tables))["AttributeName"] == "ttl"


async def test_tables_of_before_keep_their_ttl_until_it_is_switched(old_tables: Tables) -> None:
    """A deployment that applies the tables first does not touch it."""
    changes = await apply_tables(old_tables.client, old_tables.settings, poll_s=0.01)

    assert {change.action for change in changes} == {"kept"}
    assert (await ttl_of(old_tables))["AttributeName"] == "expires_at"


KEPT = ItemRetention.by(Archive(removal="ttl", retention_s=100_000, ttl_margin_s=400_000))
NOW_S = START_TS // 1_000_000


class Noting:
    """An archive that has nothing, and keeps which chats were said to change."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def find_at(self, chat: str, ts: int) -> None:
        return None

    async def note_late(self, chat: str) -> None:
        self.noted.append(chat)


async def test_item_that_may_be_archived_loses_its_ttl_when_it_changes(tables: Tables) -> None:
    """TTL must not take what the archive does not have; what is young keeps it, and what ends."""
    clock, archive = FixedClock(NOW_S), Noting()
    messages = MessageRepository(tables.client, tables.settings, clock, keeping=KEPT)
    changes = MessageChanges(
        tables.client, tables.settings, None, archive, keeping=KEPT, clock=clock
    )
    await messages.put_batch(batch(message(1), message(2, expires_at=ENDS), message(3)), 20)
    edit = message(9, kind="edit", body="other", target=1)

    await changes.apply("d-1", message(3).ts, [edit])  # just sent
    young = list(archive.noted)
    clock.now_s += 100_000
    for seq in (1, 2):
        await changes.apply("d-1", message(seq).ts, [edit])

    rows = {int(row["seq"]["N"]): row for row in await scan_all(tables) if "rev" in row}
    assert (young, archive.noted) == ([], ["d-1"])
    assert {row["body"]["S"] for row in rows.values()} == {"other"}
    assert "ttl" not in rows[1]
    assert rows[2]["ttl"]["N"] == str(ENDS)
    assert rows[3]["ttl"]["N"] == str(NOW_S + 3 + 100_000 + 400_000)


async def test_release_of_before_keeps_the_ttl_of_what_it_changes(tables: Tables) -> None:
    """It does not know what it is for."""
    messages = MessageRepository(tables.client, tables.settings, FixedClock(NOW_S), keeping=KEPT)
    await messages.put_batch(batch(message(1)), 20)
    old = Writer(tables, versions.TTL - 1, "d-1", random.Random(1))
    old.head = 1

    await old.apply("edit", 1)

    (row,) = await scan_all(tables)
    assert (row["rev"]["N"], row["ttl"]["N"]) == ("2", str(NOW_S + 1 + 100_000 + 400_000))


async def test_tombstone_that_may_be_archived_is_not_revived(tables: Tables) -> None:
    """TTL has yet to remove its item; what lies over the archive with an older `rev` counts not."""
    clock = FixedClock(NOW_S)
    messages = MessageRepository(tables.client, tables.settings, clock, keeping=KEPT)
    changes = MessageChanges(tables.client, tables.settings, keeping=KEPT, clock=clock)
    buried = [message(seq, body="", deleted=True, rev=seq) for seq in (2, 3)]
    await messages.put_batch(batch(*buried), 20)

    young = await changes.revive(batch(message(2))[0])
    clock.now_s += 100_000
    old = await changes.revive(batch(message(3))[0])

    assert (young, old) == (True, False)
