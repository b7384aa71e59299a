"""Migrations on a real server, while old and new writers go on, and dying anywhere."""

from __future__ import annotations

import asyncio
import collections
import random

import pytest

from chatserver.errors import ConfigError, Conflict, Unavailable
from chatserver.warm.messages.chat_files import ChatFiles, mend_files
from chatserver.warm.schema.migrations.item_repair import mend_item
from chatserver.warm.schema import versions
from chatserver.warm.schema.active_version import SchemaRows, SchemaState, watch_schema
from chatserver.warm.schema.migrations import MIGRATIONS
from chatserver.warm.schema.migrations.cost_estimate import estimate
from chatserver.warm.schema.migrations.runner import Options, list_statuses
from chatserver.warm.schema.migrations.state import LockLost, MigrationRows, Segment
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.schema.migration_support import (
    SMALL,
    Journal,
    JumpClock,
    Writer,
    acting,
    is_fill,
    listed_by_index,
    old_tables,
    rows_of_messages,
    scan_all,
    up,
    up_with_deaths,
    with_file,
    writing,
)
from tests.integration.warm.support import Tables, batch, message, refuse, reply
from tests.support.constants import constants

pytest_plugins = ["tests.integration.warm.fixtures"]
__all__ = ["old_tables"]

CONTRACT = Options(segments=3, page_items=7, is_contract=True)


@pytest.mark.parametrize("seed", [1, 2])
async def test_up_that_dies_anywhere_fills_each_item_once_and_loses_no_newer_write(
    old_tables: Tables, seed: int
) -> None:
    """Killed at random calls and run again, while an old and a new server write and change."""
    dice, clock = random.Random(seed), JumpClock()
    old = Writer(old_tables, 0, "old", dice)
    new = Writer(old_tables, None, "new", dice)
    # What the new one changes was written before it came.
    before = Writer(old_tables, 0, "new", dice)
    await old.put(90)
    await before.put(60)
    new.head, new.revs = before.head, before.revs
    first = [*old.revs, *new.revs]
    journal = Journal(old_tables)
    await journal.begin()

    async with writing(old, new):
        deaths = await up_with_deaths(old_tables, SMALL, clock, dice)
    filled = await SchemaRows(old_tables.client, old_tables.settings).get_state()
    then = rows_of_messages(await scan_all(old_tables))
    assert all("files_of" in then[key] for key in first if "attachments" in then[key])
    async with writing(new):  # the old one is gone
        deaths += await up_with_deaths(old_tables, CONTRACT, clock, dice)

    assert deaths > 5
    assert filled == SchemaState(versions.PINS, 0)
    rows = await scan_all(old_tables)
    assert all(mend_files(row) is None for row in rows)
    found = rows_of_messages(rows)
    wanted = old.revs | new.revs
    assert {key: int(found[key]["rev"]["N"]) for key in wanted} == wanted
    fills: collections.Counter[tuple[str, str]] = collections.Counter()
    for was, became in journal.changes():
        assert int(was["rev"]["N"]) <= int(became["rev"]["N"]), "a newer write was lost"
        fills[became["chatid"]["S"], became["seq"]["N"]] += is_fill(was, became)
    # Twice at most where an old server deleted, afterwards, what had been filled.
    gone = {(chat, str(seq)) for chat, seq in old.gone}
    lacked = [key for key, row in found.items() if key[0] == "old" and "files_of" in row]
    assert len(lacked) > 50
    assert all(fills[chat, str(seq)] == 1 for chat, seq in lacked)
    assert {key for key, times in fills.items() if times > 1} <= gone
    assert max(fills.values()) <= 2


async def test_index_lists_what_has_files_and_is_read_alone_after_the_contract(
    old_tables: Tables,
) -> None:
    """Before it the chat is read through, and what is found lacking is filled on the way."""
    writer = Writer(old_tables, 0, "c", random.Random(3))
    await writer.put(40)
    has_files = {
        seq
        for (_, seq), row in rows_of_messages(await scan_all(old_tables)).items()
        if "attachments" in row
    }
    files = ChatFiles(old_tables.client, acting(old_tables.settings, None))
    first = await files.list_with_files("c", limit=10)
    newest = sorted(has_files, reverse=True)

    assert [each.seq for each in first.items] == newest[:10]
    filled = {
        seq
        for (_, seq), row in rows_of_messages(await scan_all(old_tables)).items()
        if "files_of" in row
    }
    assert filled == set(newest[:10])  # what was looked at, and no more
    await up(old_tables)
    await up(old_tables, CONTRACT)
    assert await listed_by_index(old_tables, "c") == has_files
    await writer.apply("delete", newest[12])  # by a server that knows nothing of the index

    old_tables.faults.requests.clear()
    files = ChatFiles(old_tables.client, old_tables.settings)
    rest = await files.list_with_files("c", limit=100, start=first.next)

    assert [each.seq for each in rest.items] == [s for s in newest[10:] if s != newest[12]]
    (query,) = old_tables.faults.bodies("Query")
    assert query["IndexName"] == "files"


async def test_old_release_leaves_what_it_does_not_know(tables: Tables) -> None:
    """An edit or reaction by an older server takes no attribute of a newer one away."""
    writer = Writer(tables, None, "c", random.Random(1))
    await writer.put(20)
    old = Writer(tables, 0, "c", random.Random(1))
    old.head = writer.head
    before = rows_of_messages(await scan_all(tables))

    for kind, target in (("edit", 1), ("reaction", 2), ("edit", 3)):
        await old.apply(kind, target)

    after = rows_of_messages(await scan_all(tables))
    for key, row in before.items():
        assert after[key].get("files_of") == row.get("files_of")
    assert int(after["c", 1]["rev"]["N"]) == 21


async def test_fill_of_what_was_read_too_long_ago_undoes_nothing(old_tables: Tables) -> None:
    """An old server edits one, deletes one and TTL removes one, after they were read."""
    old = Writer(old_tables, 0, "c", random.Random(1))
    await old.store([with_file(seq, "c") for seq in (1, 2, 3)])
    read = rows_of_messages(await scan_all(old_tables))
    table = MESSAGES.name_in(old_tables.settings)
    await old.apply("edit", 1)
    await old.apply("delete", 2)
    removed = {name: read["c", 3][name] for name in MESSAGES.key.names}
    await old_tables.client.call("delete_item", {"TableName": table, "Key": removed})

    units = [
        await mend_item(old_tables.client, MESSAGES, table, read["c", seq], mend_files)
        for seq in (1, 2, 3)
    ]

    now = rows_of_messages(await scan_all(old_tables))
    assert units == [1.0, 0.0, 0.0]
    assert now["c", 1]["body"]["S"] == "x4"
    assert now["c", 1]["files_of"] == {"S": "c"}
    assert "files_of" not in now["c", 2]
    assert ("c", 3) not in now


async def test_deletion_that_read_the_message_before_the_fill_unlists_it(
    old_tables: Tables,
) -> None:
    """A fill does not change `rev`, so the deletion cannot know by that that it came between."""
    writer = Writer(old_tables, None, "c", random.Random(1))
    old = Writer(old_tables, 0, "c", random.Random(1))
    await old.store([with_file(1, "c"), with_file(2, "c")])
    writer.head = 2
    read = rows_of_messages(await scan_all(old_tables))["c", 1]
    await up(old_tables)
    await writer.shards.get()
    old_tables.faults.add("GetItem", reply({"Item": read}))

    await writer.apply("delete", 1)

    rows = rows_of_messages(await scan_all(old_tables))
    assert rows["c", 1]["deleted"] == {"BOOL": True}
    assert "files_of" not in rows["c", 1]
    assert await listed_by_index(old_tables, "c") == {2}


async def test_answer_of_a_fill_that_is_lost_fills_once(old_tables: Tables) -> None:
    """The second try finds the item as it should be."""
    await Writer(old_tables, 0, "c", random.Random(2)).put(5)
    old_tables.faults.lose_answers("UpdateItem", 3)

    version, _ = await up(old_tables)

    assert version == versions.PINS
    assert all(mend_files(row) is None for row in await scan_all(old_tables))


async def test_plan_tells_the_units_that_up_then_takes(old_tables: Tables) -> None:
    """Estimated from a sample, within a quarter of what the server counted."""
    dice = random.Random(4)
    for chat in range(12):
        await Writer(old_tables, 0, f"c{chat}", dice).put(25)
    await Writer(old_tables, 0, "long", dice).put(150)

    found = await estimate(old_tables.client, old_tables.settings, MIGRATIONS[:4])
    (_, fill, pins, look) = found
    _, lines = await up(old_tables)

    (told,) = [line for line in lines.said if line.startswith("2 files-filled: 450 items")]
    read_units, write_units = (float(word) for word in told.split() if "." in word)
    assert (fill.items, pins.write_units) == (450, 0)
    assert (look.read_units, look.write_units) == (fill.read_units, 0)
    assert fill.write_units == pytest.approx(write_units, rel=0.25)
    assert fill.read_units <= read_units + 1
    again = await estimate(old_tables.client, old_tables.settings, MIGRATIONS[1:2])
    assert again[0].write_units == 0


async def test_contract_waits_for_a_run_of_its_own_and_for_older_processes(
    old_tables: Tables,
) -> None:
    """It is refused while one is there, by its name; then that schema is refused."""
    clock, settings = JumpClock(), old_tables.settings
    with pytest.raises(Conflict, match="1 files-index comes first"):
        await up(old_tables, CONTRACT)
    version, lines = await up(old_tables)
    assert version == versions.PINS
    assert "migrate up --contract" in lines.said[-1]

    async with watch_schema(old_tables.client, acting(settings, 0), "worker", clock):
        with pytest.raises(Conflict, match=r"replace them first: worker-.* \(schema 0\)"):
            await up(old_tables, CONTRACT)
    async with watch_schema(old_tables.client, settings, "worker", clock):
        assert (await up(old_tables, CONTRACT))[0] == versions.FILES_ONLY
        # As who was killed right after it does it again.
        version, lines = await up(old_tables, CONTRACT)
    assert version == versions.FILES_ONLY
    assert lines.said == ["4 files-only: done already. 5 ttl is next, without --contract"]

    with pytest.raises(ConfigError, match="their schema is 4, for processes that act by schema 1"):
        async with watch_schema(old_tables.client, acting(settings, 0), "worker", clock):
            pass
    async with watch_schema(old_tables.client, acting(settings, 1), "worker", clock):
        pass  # older, and compatible
    assert await SchemaRows(old_tables.client, settings).list_processes(clock.time()) == []


@pytest.mark.constants({"chatserver.warm.schema.active_version.SCHEMA_CHECK_S": 0.05})
async def test_process_of_an_older_schema_that_runs_on_ends_when_it_is_refused(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again from time to time, and stops in order."""
    killed = asyncio.Event()
    monkeypatch.setattr("chatserver.warm.schema.active_version.os.kill", lambda *_: killed.set())
    settings = acting(tables.settings, 5)
    rows = SchemaRows(tables.client, tables.settings)

    async with watch_schema(tables.client, settings, "worker", JumpClock()):
        await rows.raise_state(SchemaState(9, 6))
        async with asyncio.timeout(60):
            await killed.wait()


async def test_process_starts_although_the_schema_cannot_be_read(tables: Tables) -> None:
    """A DynamoDB that is down at the start is no reason to stay down, too."""
    tables.faults.add("PutItem", *[refuse("InternalServerError", 500)] * 5)

    async with watch_schema(tables.client, tables.settings, "worker", JumpClock()):
        pass


@pytest.mark.constants({"chatserver.warm.schema.migrations.state.MIGRATE_LEASE_S": 0.2})
async def test_second_run_waits_for_the_lock_and_refuses_if_the_first_goes_on(
    old_tables: Tables,
) -> None:
    """One at a time. One that lost its turn writes nothing any more."""
    tables = old_tables
    rows, clock = MigrationRows(tables.client, tables.settings), JumpClock()
    with constants({"chatserver.warm.schema.migrations.state.MIGRATE_LEASE_S": 60.0}):
        assert await rows.claim("first", clock.time()) == 1

    with pytest.raises(Unavailable, match="another `chatserver migrate up` is running: first"):
        await up(tables)
    clock.ahead_s = 61
    assert await rows.claim("second", clock.time()) == 2
    await rows.put_segment(2, Segment(0, read=5), 2)

    with pytest.raises(LockLost):
        await rows.put_segment(2, Segment(0, read=3), 1)
    with pytest.raises(LockLost):
        await rows.renew("first", clock.time())
    assert (await rows.get_segment(2, 0)).read == 5


async def test_tables_that_are_made_anew_are_of_the_newest_schema(tables: Tables) -> None:
    """There is nothing to migrate; applied to older tables, nothing is claimed."""
    state = await SchemaRows(tables.client, tables.settings).get_state()
    standings = await list_statuses(tables.client, tables.settings, state)

    assert state == SchemaState(MIGRATIONS[-1].number, max(each.oldest for each in MIGRATIONS))
    assert {each.state for each in standings} == {"done"}


async def test_tables_of_before_are_applied_without_what_migrations_bring(
    old_tables: Tables,
) -> None:
    """A deployment that applies the tables first starts no index and claims no schema."""
    changes = await apply_tables(old_tables.client, old_tables.settings, poll_s=0.01)

    assert {change.action for change in changes} == {"kept"}
    state = await SchemaRows(old_tables.client, old_tables.settings).get_state()
    assert state == SchemaState(0, 0)


async def test_marker_of_an_expiring_message_is_left_alone(old_tables: Tables) -> None:
    """It has no files and no revision."""
    writer = Writer(old_tables, 0, "c", random.Random(1))
    await writer.store([with_file(1, "c", expires_at=2_000_000_000)])
    await writer.store(batch(message(2, chat="c")))

    await up(old_tables)

    rows = await scan_all(old_tables)
    assert sorted(row["chatid"]["S"] for row in rows) == ["c", "c", "c#gone"]
    assert [row["seq"]["N"] for row in rows if "files_of" in row] == ["1"]
