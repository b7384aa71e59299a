"""A migration that switches the TTL attribute of a table, and changes of items with `ttl`.

The test server stores the TTL setting but deletes no items.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chatserver.config import Archive
from chatserver.errors import Unavailable
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.messages import Messages
from chatserver.warm.messages.ttl import ItemRetention
from chatserver.warm.schema.migrations.migration import Migration
from chatserver.warm.schema.migrations.runner import MigrationOptions
from chatserver.warm.schema.provisioning import describe_ttl
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.schema.migration_support import (
    JumpClock,
    Lines,
    migrate_up_with_crashes,
    runner_of,
    scan_all,
)
from tests.integration.warm.support import START_TS, FixedClock, Tables, batch, message, reply

ENDS = 2_000_000_000
BUSY = "ValidationException: Time to live has been modified multiple times within a fixed interval"
SWITCH = Migration(
    number=2,
    name="expiry",
    kind="contract",
    change="expiry",
    table=MESSAGES,
    why="DynamoDB's TTL reads `removed_at` instead of `ttl`",
    expiry="removed_at",
    oldest=1,
)
CONTRACT = MigrationOptions(contract=2)


async def ttl_of(tables: Tables) -> dict[str, str]:
    """Return the TTL setting of `messages`."""
    return await describe_ttl(tables.client, MESSAGES.name_in(tables.settings))


async def switch(tables: Tables, options: MigrationOptions = CONTRACT) -> tuple[int, Lines]:
    """Run the migration; return the schema version and the output."""
    lines = Lines()
    runner = runner_of(tables, tables.client, options, JumpClock(), lines, [SWITCH])
    return (await runner.run("test")).version, lines


async def test_ttl_is_switched_by_runs_that_crash_anywhere(tables: Tables) -> None:
    """Each run continues from the current state of the table."""
    crashes = await migrate_up_with_crashes(
        tables, CONTRACT, JumpClock(), random.Random(174), [SWITCH]
    )

    assert crashes > 3
    switched = {"TimeToLiveStatus": "ENABLED", "AttributeName": "removed_at"}
    assert await ttl_of(tables) == switched


async def test_switch_retries_until_aws_allows_another_change(tables: Tables) -> None:
    """AWS takes time to disable TTL and refuses a second change until then."""

    def state(status: str) -> dict[str, Any]:
        described = {"TimeToLiveStatus": status, "AttributeName": "ttl"}
        return {"TimeToLiveDescription": described}

    busy = (400, {"__type": "com.amazon.coral.validate#ValidationException", "message": BUSY})
    slow = [reply(state("DISABLING"))] * 2
    tables.faults.add("DescribeTimeToLive", lambda _: None, *slow)
    tables.faults.add("UpdateTimeToLive", lambda _: None, lambda _: busy)
    tables.faults.requests.clear()

    version, lines = await switch(tables)

    updates = [
        (
            body["TimeToLiveSpecification"]["AttributeName"],
            body["TimeToLiveSpecification"]["Enabled"],
        )
        for body in tables.faults.bodies("UpdateTimeToLive")
    ]
    assert version == 2
    assert updates == [("ttl", False), ("removed_at", True), ("removed_at", True)]
    assert any(line.endswith("TTL reads removed_at") for line in lines.output)


async def test_switch_that_timed_out_is_continued_by_the_next_run(tables: Tables) -> None:
    """The next run reads the current TTL setting."""
    name = MESSAGES.name_in(tables.settings)
    off = {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLING", "AttributeName": "ttl"}}
    tables.faults.add("DescribeTimeToLive", lambda _: None, *[reply(off)] * 20)

    with pytest.raises(Unavailable, match=f"2 expiry: {name}"):
        await switch(tables, MigrationOptions(contract=2, index_timeout_s=0.5))
    tables.faults._faults.clear()
    assert (await ttl_of(tables))["TimeToLiveStatus"] == "DISABLED"
    version, _ = await switch(tables)

    assert version == 2
    assert (await ttl_of(tables))["AttributeName"] == "removed_at"


RETENTION = ItemRetention.by(Archive(removal="ttl", retention_s=100_000, ttl_margin_s=400_000))
NOW_S = START_TS // 1_000_000


class ArchiveStub:
    """An empty archive that records chats with late changes."""

    def __init__(self) -> None:
        self.late_chats: list[str] = []

    async def find_at(self, chat: str, ts: int) -> None:
        return None

    async def record_late(self, chat: str) -> None:
        self.late_chats.append(chat)


async def test_change_removes_ttl_from_an_item_that_may_be_archived(tables: Tables) -> None:
    """TTL must not delete an unarchived change. Recent and expiring items keep their `ttl`."""
    clock, archive = FixedClock(NOW_S), ArchiveStub()
    messages = Messages(tables.client, clock, retention=RETENTION)
    changes = MessageChanges(tables.client, None, archive, retention=RETENTION, clock=clock)
    await messages.put_batch(batch(message(1), message(2, expires_at=ENDS), message(3)), 20)
    edit = message(9, kind="edit", body="other", target=1)

    await changes.apply("d-1", message(3).ts, [edit])  # it was just sent
    young = list(archive.late_chats)
    clock.now_s += 100_000
    for seq in (1, 2):
        await changes.apply("d-1", message(seq).ts, [edit])

    rows = {int(row["seq"]["N"]): row for row in await scan_all(tables) if "rev" in row}
    assert (young, archive.late_chats) == ([], ["d-1"])
    assert {row["body"]["S"] for row in rows.values()} == {"other"}
    assert "ttl" not in rows[1]
    assert rows[2]["ttl"]["N"] == str(ENDS)
    assert rows[3]["ttl"]["N"] == str(NOW_S + 3 + 100_000 + 400_000)


async def test_change_of_a_tombstone_that_may_be_archived_is_ignored(tables: Tables) -> None:
    """TTL has not deleted the item yet, and the archive ignores an item with an older `rev`."""
    clock = FixedClock(NOW_S)
    messages = Messages(tables.client, clock, retention=RETENTION)
    changes = MessageChanges(tables.client, retention=RETENTION, clock=clock)
    tombstones = [message(seq, body="", deleted=True, rev=seq) for seq in (2, 3)]
    await messages.put_batch(batch(*tombstones), 20)

    young = await changes.replay(batch(message(2))[0])
    clock.now_s += 100_000
    old = await changes.replay(batch(message(3))[0])

    assert (young, old) == (True, False)
