"""Migrations with concurrent old and new writers, and with crashes at any call."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import random

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.errors import ConfigError, Conflict, Unavailable
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema import provisioning
from chatserver.warm.schema.active_version import (
    NEWEST,
    OLDEST,
    SchemaState,
    SchemaVersions,
    watch_schema,
)
from chatserver.warm.schema.migrations.backfill import repair_item
from chatserver.warm.schema.migrations.cost_estimate import estimate
from chatserver.warm.schema.migrations.progress_and_lock import (
    LockLost,
    MigrationProgress,
    ScanSegment,
)
from chatserver.warm.schema.migrations.runner import MigrationOptions, list_statuses
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import MESSAGES, TABLES
from tests.integration.warm.schema.examples.migrations import EXAMPLES
from tests.integration.warm.schema.examples.pinned_messages import Pins
from tests.integration.warm.schema.examples.thread_index import (
    THREAD_INDEX,
    add_thread,
    thread_of,
)
from tests.integration.warm.schema.migration_support import (
    SMALL,
    ChangeLog,
    JumpClock,
    ThreadWriter,
    Writer,
    is_fill,
    migrate_up,
    migrate_up_with_crashes,
    reply,
    rows_of_messages,
    scan_all,
    with_schema_version,
    writing,
)
from tests.integration.warm.support import Tables, batch, message, refuse
from tests.support.constants import constants

CONTRACT_4, CONTRACT_5 = (
    MigrationOptions(segments=3, page_items=7, contract=each) for each in (4, 5)
)
LATER = {"chatserver.warm.schema.active_version.NEWEST": EXAMPLES[-1].number}


@pytest.mark.parametrize("seed", [1, 2])
async def test_up_with_crashes_fills_each_item_once_and_loses_no_newer_write(
    tables: Tables, seed: int
) -> None:
    """Crashes occur at random calls, while an old and a new release write and change messages."""
    rng, clock = random.Random(seed), JumpClock()
    old, new = Writer(tables, "old", rng), ThreadWriter(tables, "new", rng)
    new.start(tables)
    # The messages that the new release changes were written before it was deployed.
    before = Writer(tables, "new", rng)
    await old.put(90)
    await before.put(60)
    new.head, new.revs = before.head, before.revs
    first = [*old.revs, *new.revs]
    change_log = ChangeLog(tables)
    await change_log.begin()

    async with writing(old, new):
        crashes = await migrate_up_with_crashes(tables, SMALL, clock, rng)
    filled = await SchemaVersions(tables.client).get_state()
    then = rows_of_messages(await scan_all(tables))
    assert all("thread" in then[key] for key in first if "reply_to" in then[key])
    async with writing(new):  # the old release has ended
        crashes += await migrate_up_with_crashes(tables, CONTRACT_4, clock, rng)
    contracted = await SchemaVersions(tables.client).get_state()
    replaced = rows_of_messages(await scan_all(tables))
    assert all(add_thread(row) is None for row in replaced.values())
    new.start(tables)
    async with writing(new):
        crashes += await migrate_up_with_crashes(tables, CONTRACT_5, clock, rng)

    assert crashes > 5
    assert filled == SchemaState(3, 1)
    assert contracted.version == 4, "a run that crashed after its end also ran the next contract"
    found = rows_of_messages(await scan_all(tables))
    assert not any("reply_to" in row for row in found.values())
    for key, row in replaced.items():
        assert found[key].get("thread") == thread_of(row)
    wanted = old.revs | new.revs
    assert {key: int(found[key]["rev"]["N"]) for key in wanted} == wanted
    fills: collections.Counter[tuple[str, str]] = collections.Counter()
    for was, became in change_log.changes():
        assert int(was["rev"]["N"]) <= int(became["rev"]["N"]), "a newer write was lost"
        fills[became["chatid"]["S"], became["seq"]["N"]] += is_fill(was, became)
    # Only messages that the old release deleted after their fill are filled twice.
    deleted = {(chat, str(seq)) for chat, seq in old.deleted}
    filled_keys = [key for key, row in found.items() if key[0] == "old" and "thread" in row]
    assert len(filled_keys) > 50
    assert all(fills[chat, str(seq)] == 1 for chat, seq in filled_keys)
    assert {key for key, times in fills.items() if times > 1} <= deleted
    assert max(fills.values()) <= 2


async def test_old_release_keeps_unknown_attributes(tables: Tables) -> None:
    """An edit or reaction by an older release does not remove a newer attribute."""
    rng = random.Random(1)
    new, old = ThreadWriter(tables, "c", rng), Writer(tables, "c", rng)
    new.start(tables)
    await new.put(20)
    old.head = new.head
    before = rows_of_messages(await scan_all(tables))

    for kind, target in (("edit", 1), ("reaction", 2), ("edit", 3)):
        await old.apply(kind, target)

    after = rows_of_messages(await scan_all(tables))
    for key, row in before.items():
        assert after[key].get("thread") == row.get("thread")
    assert int(after["c", 1]["rev"]["N"]) == 21


async def test_fill_of_a_stale_item_overwrites_no_newer_write(tables: Tables) -> None:
    """After the read, an old release edits one item and deletes another; TTL deletes a third."""
    old = Writer(tables, "c", random.Random(1))
    await old.store([reply(seq, "c") for seq in (1, 2, 3)])
    read = rows_of_messages(await scan_all(tables))
    table = MESSAGES.name_in(tables.settings)
    await old.apply("edit", 1)
    await old.apply("delete", 2)
    removed = {name: read["c", 3][name] for name in MESSAGES.key.names}
    await tables.client.call("delete_item", {"TableName": table, "Key": removed})

    units = [
        await repair_item(Table(tables.client, MESSAGES), read["c", seq], add_thread)
        for seq in (1, 2, 3)
    ]

    now = rows_of_messages(await scan_all(tables))
    assert units == [1.0, 0.0, 0.0]
    assert now["c", 1]["body"]["S"] == "x4"
    assert now["c", 1]["thread"] == {"S": "c#1"}
    assert "thread" not in now["c", 2]
    assert ("c", 3) not in now


async def test_fill_with_a_lost_response_is_applied_once(tables: Tables) -> None:
    """The retry finds that the item is filled."""
    await Writer(tables, "c", random.Random(2)).put(5)
    tables.faults.drop_responses("UpdateItem", 3)

    version, _ = await migrate_up(tables)

    assert version == 3
    assert all(add_thread(row) is None for row in await scan_all(tables))


async def test_plan_estimates_the_units_that_up_consumes(tables: Tables) -> None:
    """The estimate from a sample is within 25 % of the consumption that the server reports."""
    rng = random.Random(4)
    for chat in range(12):
        await Writer(tables, f"c{chat}", rng).put(25)
    await Writer(tables, "long", rng).put(150)

    found = await estimate(tables.client, tables.settings, EXAMPLES)
    (_, fill, check, removal, pins) = found
    _, lines = await migrate_up(tables)

    (summary,) = [line for line in lines.output if line.startswith("3 thread-fill: 450 items")]
    read_units, write_units = (float(word) for word in summary.split() if "." in word)
    assert (fill.items, pins.write_units) == (450, 0)
    assert (check.read_units, check.write_units) == (fill.read_units, 0)
    assert removal.share == fill.share > 0.5
    assert fill.write_units == pytest.approx(write_units, rel=0.25)
    assert fill.read_units <= read_units + 1
    again = await estimate(tables.client, tables.settings, EXAMPLES[1:2])
    assert again[0].write_units == 0


async def test_contract_is_refused_while_older_processes_run_and_without_its_option(
    tables: Tables,
) -> None:
    """The error names the older process. Afterwards processes of that schema cannot start."""
    clock, settings, client = JumpClock(), tables.settings, tables.client
    with pytest.raises(Conflict, match="2 thread-index must run first"):
        await migrate_up(tables, CONTRACT_4)
    with pytest.raises(Conflict, match="migration 3 is not a contract; contracts: 4, 5"):
        await migrate_up(tables, MigrationOptions(contract=3))
    version, lines = await migrate_up(tables)
    assert version == 3
    assert "migrate up --contract 4" in lines.output[-1]

    async with watch_schema(client, settings, "worker", clock):
        with pytest.raises(Conflict, match=r"replace them first: worker-.* \(schema 1\)"):
            await migrate_up(tables, CONTRACT_4)
    with pytest.raises(Conflict, match=r"4 thread-only must run first: .* up --contract 4`"):
        await migrate_up(tables, CONTRACT_5)
    with constants(LATER):
        async with watch_schema(client, settings, "worker", clock):
            assert (await migrate_up(tables, CONTRACT_4))[0] == 4
            # An operator repeats a run that was killed at its end.
            version, lines = await migrate_up(tables, CONTRACT_4)
            assert (version, lines.output) == (4, ["4 thread-only: done already"])
            assert (await migrate_up(tables, CONTRACT_5))[0] == 5
        async with watch_schema(client, with_schema_version(settings, 4), "worker", clock):
            pass  # this process is older but compatible

    with pytest.raises(ConfigError, match="have schema 5, which requires processes of schema 4"):
        async with watch_schema(client, settings, "worker", clock):
            pass
    assert await SchemaVersions(client).list_processes(clock.time()) == []


@pytest.mark.constants({"chatserver.warm.schema.active_version.SCHEMA_CHECK_S": 0.05})
async def test_running_process_stops_when_its_schema_is_no_longer_supported(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process checks periodically and stops with SIGTERM."""
    killed = asyncio.Event()
    monkeypatch.setattr("chatserver.warm.schema.active_version.os.kill", lambda *_: killed.set())
    rows = SchemaVersions(tables.client)

    async with watch_schema(tables.client, tables.settings, "worker", JumpClock()):
        await rows.raise_state(SchemaState(9, 6))
        async with asyncio.timeout(60):
            await killed.wait()


async def test_process_starts_if_the_schema_cannot_be_read(tables: Tables) -> None:
    """An outage of DynamoDB must not prevent the start."""
    tables.faults.add("PutItem", *[refuse("InternalServerError", 500)] * 5)

    async with watch_schema(tables.client, tables.settings, "worker", JumpClock()):
        pass


@pytest.mark.constants({"chatserver.warm.schema.migrations.progress_and_lock.MIGRATE_LEASE_S": 0.2})
async def test_second_run_fails_if_the_first_keeps_the_lock(
    tables: Tables,
) -> None:
    """Only one run is active at a time. A run that lost the lock cannot write."""
    rows, clock = MigrationProgress(tables.client), JumpClock()
    with constants({"chatserver.warm.schema.migrations.progress_and_lock.MIGRATE_LEASE_S": 60.0}):
        assert await rows.claim("first", clock.time()) == 1

    with pytest.raises(Unavailable, match="another `chatserver migrate up` is running: first"):
        await migrate_up(tables)
    clock.ahead_s = 61
    assert await rows.claim("second", clock.time()) == 2
    segment = ScanSegment(0, {"chatid": {"S": "c"}, "ts": {"N": "1"}}, read=5, write_units=1.5)
    await rows.put_segment(2, segment, 2)

    with pytest.raises(LockLost):
        await rows.put_segment(2, ScanSegment(0, read=3), 1)
    with pytest.raises(LockLost):
        await rows.renew("first", clock.time())
    assert await rows.get_segment(2, 0) == segment


async def test_new_tables_have_the_newest_schema(tables: Tables) -> None:
    """New tables need no migration."""
    state = await SchemaVersions(tables.client).get_state()
    statuses = await list_statuses(tables.client, tables.settings, state, EXAMPLES)

    assert state == SchemaState(NEWEST, OLDEST) == SchemaState(1, 1)
    assert {each.state for each in statuses} == {"to do"}


async def test_apply_on_tables_in_use_makes_no_change_of_a_migration(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tables apply` creates no index and switches no TTL that belongs to a migration."""
    later = dataclasses.replace(
        MESSAGES,
        indexes=(*MESSAGES.indexes, THREAD_INDEX),
        expiry="removed_at",
        expiry_before=MESSAGES.expiry,
    )
    monkeypatch.setattr(provisioning, "MESSAGES", later)
    monkeypatch.setattr(provisioning, "TABLES", (later, *TABLES[1:]))

    with constants(LATER):
        changes = await apply_tables(tables.client, tables.settings, poll_s=0.01)

    assert {change.action for change in changes} == {"kept"}
    state = await SchemaVersions(tables.client).get_state()
    assert state == SchemaState(1, 1)


async def test_marker_of_an_expiring_message_is_not_changed(tables: Tables) -> None:
    """A marker is not a message, so it has no `rev`."""
    writer = Writer(tables, "c", random.Random(1))
    await writer.store([reply(1, "c", expires_at=2_000_000_000)])
    await writer.store(batch(message(2, chat="c")))

    await migrate_up(tables)

    rows = await scan_all(tables)
    assert sorted(row["chatid"]["S"] for row in rows) == ["c", "c", "c#gone"]
    assert [row["seq"]["N"] for row in rows if "thread" in row] == ["1"]


async def test_example_1_fills_lazily_and_in_bulk_and_then_reads_by_index(
    tables: Tables,
) -> None:
    """Lazy fill, online index, bulk fill, switch of readers, and removal of the old attribute."""
    old, new = Writer(tables, "c", random.Random(3)), ThreadWriter(tables, "c", random.Random(3))
    await old.store([reply(seq, "c") for seq in range(2, 30)])
    await old.store(batch(message(30, chat="c", reply_to=2), message(31, chat="c")))

    new.start(tables)
    assert await new.threads.list_replies("c", 2) == [30]
    await new.threads.edit("c", message(5).ts, "edited", 32)
    await new.threads.put(message(33, chat="c", reply_to=2))
    rows = rows_of_messages(await scan_all(tables))
    assert {seq for (_, seq), row in rows.items() if "thread" in row} == {5, 30, 33}
    assert "reply_to" in rows["c", 33]  # for readers of the old release
    for options, version in ((SMALL, 3), (CONTRACT_4, 4), (CONTRACT_5, 5)):
        assert (await migrate_up(tables, options))[0] == version
    new.start(tables)
    await new.threads.put(message(34, chat="c", reply_to=2))
    tables.faults.requests.clear()
    found = await new.threads.list_replies("c", 2)

    assert found == [30, 33, 34]
    (query,) = tables.faults.bodies("Query")
    assert query["IndexName"] == "thread"
    rows = rows_of_messages(await scan_all(tables))
    assert not any("reply_to" in row for row in rows.values())
    assert {seq for (_, seq), row in rows.items() if "thread" not in row} == {31}


async def test_example_2_pins_need_their_migration_and_match_the_flag(
    tables: Tables,
) -> None:
    """Pin and flag change in one transaction, despite any race or lost response."""
    pins = Pins(tables.client, tables.settings, SystemClock())
    old = Writer(tables, "c", random.Random(1))
    await old.put(9)
    with pytest.raises(Unavailable, match="the tables have schema 1; run `chatserver migrate up`"):
        await pins.pin("c", 1, message(1).ts)
    for options in (SMALL, CONTRACT_4, CONTRACT_5, SMALL):
        version, _ = await migrate_up(tables, options)
    assert version == 6
    tables.faults.drop_responses("TransactWriteItems", 5)
    changes = 0

    async def work(seed: int) -> None:
        nonlocal changes
        rng, pins = random.Random(seed), Pins(tables.client, tables.settings, SystemClock())
        for _ in range(6):
            seq = rng.randint(1, 6)
            is_pin = rng.random() < 0.6
            is_done = await (pins.pin if is_pin else pins.unpin)("c", seq, message(seq).ts)
            changes += is_done * (1 if is_pin else -1)

    async with writing(old):
        await asyncio.gather(*(work(seed) for seed in range(8)))

    pins = Pins(tables.client, tables.settings, SystemClock())
    left = await pins.list_pins("c")
    rows = rows_of_messages(await scan_all(tables))
    assert sorted(seq for (_, seq), row in rows.items() if "pinned" in row) == left
    assert len(left) == changes
    assert not await pins.pin("c", 999, message(999).ts)
