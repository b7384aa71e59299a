"""The capacity model predicts what a real run used: units, entries, items, objects, bytes.

Messages are committed, persisted and archived on real servers, and the model gets the same numbers
as inputs. Counts are equal. Bytes in Redis depend on its version and allocator, and compressed
bytes on the texts, so these are equal within a factor.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import Seq
from chatserver.domain.messages import Audience
from chatserver.operations.capacity.plan import load_constants, make_plan
from chatserver.operations.capacity.plan_inputs import PlanInputs, parse_inputs
from chatserver.operations.cost.prices import load_prices
from chatserver.telemetry.dynamodb_usage import KINDS, UsageAccumulator
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    open_container,
    persist,
)
from tests.support.footprint import (
    Run,
    index_bytes,
    item_bytes,
    items_of,
    make_chats,
    measure_redis,
)
from tests.support.servers.processes import eventually
from workers.archive.container import ArchiveContainer

MESSAGES = 60  # per chat
SIZE = 300  # bytes of a message body
MEMBERS = 6  # per group
CHATS = 3
DAY_S = 86_400
# Byte counts may differ by this factor: other allocators, other texts.
FACTOR = 2.0


def plan_of(is_group: bool, **changes: float) -> dict[str, float]:
    """Return the values of a plan whose users do in a day what the run does."""
    inputs = parse_inputs(PlanInputs())
    members = MEMBERS if is_group else 2
    inputs |= {
        "users": CHATS * members,
        "messages_per_user_day": MESSAGES / members,
        "message_bytes": SIZE,
        "group_share": float(is_group),
        "group_size": MEMBERS,
        "chats_per_user": 1,
        "chat_days": 1,
        "keep": 1,
        "retention": 1,
        "attachments": 0,
        "pages_per_user_day": 0,
        **changes,
    }
    constants, from_results = load_constants()
    made = make_plan(inputs, "worker", constants, from_results, load_prices())
    return {line.name: line.value for line in made.lines}


@contextlib.asynccontextmanager
async def open_run(
    redis_url: str, tables: Tables, s3: str
) -> AsyncIterator[tuple[StorageContainer, ObjectStore]]:
    """Open a container that archives messages after one second, and its bucket."""
    cold = cold_settings(s3)
    archive = config.Archive(retention_s=1, segment_entries_min=1, wait_s=0)
    async with open_s3(cold) as store:
        await apply_bucket(store, cold)
        async with open_container(
            redis_url, tables.settings, cold=cold, archive=archive
        ) as container:
            yield container, store


def is_near(predicted: float, counted: float) -> bool:
    """Return whether both are equal within the factor."""
    return counted / FACTOR <= predicted <= counted * FACTOR


def drain_units(usage: UsageAccumulator) -> dict[tuple[str, str, str], float]:
    """Return the units that the process recorded for `chatserver cost` since the last call."""
    return dict(usage.drain().units)


@pytest.mark.parametrize("is_group", [False, True], ids=["direct", "group"])
async def test_plan_predicts_what_a_run_used(
    redis_url: str, tables: Tables, s3: str, is_group: bool
) -> None:
    """Units of messages, marks and archiving are exact; bytes in Redis are near."""
    members = MEMBERS if is_group else 2
    messages = CHATS * MESSAGES
    async with open_run(redis_url, tables, s3) as (container, store):
        chats = await make_chats(container, *((0, CHATS) if is_group else (CHATS, 0)), members)
        for user in (user for chat in chats for user in chat.users):
            await container.user_loader.load_user(user)
        usage = container.messages._client.meter.usage
        usage.drain()

        await Run(container, chats, MESSAGES, SIZE).send_messages()
        persisted, held = drain_units(usage), await measure_redis(container)
        refs, refs_bytes = await remove_refs(container, chats)
        table = tables.settings.table_prefix + "messages"
        items = [await items_of(tables.client, table, chat.chat) for chat in chats]
        marks = await mark_all(container, chats)
        marked = drain_units(usage)
        await archive_all(container, chats)
        archived, objects = drain_units(usage), await objects_of(store)

    plan = plan_of(is_group, marks_per_message=marks / messages)
    assert plan["active_chats"] == CHATS
    assert plan["messages_per_s"] * DAY_S == pytest.approx(messages)
    # The first message of a direct chat adds it to the other user's list: one event per chat.
    events = 0 if is_group else CHATS
    assert plan["entries_per_message"] * messages == held.entries["inbox"] - events
    assert refs == messages
    assert plan["items"] == pytest.approx(sum(map(len, items)))
    # By feature, because each process also writes its process record sometimes.
    counted = persisted["persist", "messages", "write"]
    of_marks = marked["directory", "directory", "write"]
    assert plan["write_units_message"] * messages == counted
    assert plan["write_units_per_s"] * DAY_S == pytest.approx(counted + of_marks)
    # The plan archives half of a day's messages; the run archived all of them, once.
    plan = plan_of(is_group, retention=0.5)
    by_kind = {
        kind: sum(units for key, units in archived.items() if key[::2] == ("archive", kind))
        for kind in KINDS
    }
    assert plan["segments_per_message"] * messages == len(objects)
    assert plan["puts_per_month"] / 2_628_000 * DAY_S == pytest.approx(len(objects))
    assert plan["removal_units"] * messages == pytest.approx(by_kind["write"])
    assert plan["read_units_per_s"] * DAY_S == pytest.approx(by_kind["read"], rel=0.25)
    assert is_near(plan["archive_bytes"] * 2, sum(objects))
    heads_and_refs = sum(held.bytes[kind] for kind in ("chat", "members", "idle", "box"))
    assert is_near(plan["logs_bytes"], held.bytes["log"])
    assert is_near(plan["inboxes_bytes"], held.bytes["inbox"])
    assert is_near(plan["refs_bytes"], refs_bytes)
    assert is_near(plan["heads_bytes"] + plan["refs_bytes"], heads_and_refs)
    for item in (item for some in items for item in some):
        text = len(str(item["body"]["S"]))
        overhead = item_bytes(item) - text + index_bytes(item)
        predicted = constant("item_bytes", is_group) + constant("index_bytes", is_group)
        assert text == SIZE
        assert overhead == pytest.approx(predicted, rel=0.1)


def constant(name: str, is_group: bool) -> float:
    """Return a constant of the capacity model."""
    value = load_constants()[0][f"{name}_{'group' if is_group else 'direct'}"].value
    assert value is not None
    return value


async def remove_refs(container: StorageContainer, chats: list[Audience]) -> tuple[int, int]:
    """Delete all refs; return their number, and the bytes by which the hashes became smaller."""
    hot, count, freed = container.hot, 0, 0
    for key in [hot.keys.chat(chat.chat) for chat in chats]:
        before = await hot.call("MEMORY", "USAGE", key, "SAMPLES", 0)
        refs = [field for field in await hot.call("HKEYS", key) if field[:1] == b"#"]
        count += await hot.call("HDEL", key, *refs)
        freed += before - await hot.call("MEMORY", "USAGE", key, "SAMPLES", 0)
    return count, freed


async def mark_all(container: StorageContainer, chats: list[Audience]) -> int:
    """Mark all messages as read by all members except the senders; return the number of marks."""
    count = 0
    for chat in chats:
        for user in sorted(chat.users)[1:]:
            await container.inboxes.mark(user, chat.chat, Seq(MESSAGES), Seq(MESSAGES))
            count += 1
    await persist(container)
    return count


async def archive_all(container: StorageContainer, chats: list[Audience]) -> None:
    """Archive all messages in one visit of each chat, once the newest is a second old."""
    now = container.clock.time()
    await eventually(lambda: container.clock.time() > now + 1.5)
    for chat in chats:
        assert (
            await container.get(ArchiveContainer).archiver.archive_chat(chat.chat)
        ).moved == MESSAGES


async def objects_of(store: ObjectStore) -> list[int]:
    """Return the sizes of all segments in the test's bucket."""
    listed = await store.call("list_objects_v2", Prefix="archive/")
    return [each["Size"] for each in listed["Contents"]]
