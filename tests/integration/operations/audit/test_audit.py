"""The audit reports each injected fault, and nothing for a consistent chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chatserver.protocol.frames import Message
from chatserver.warm.messages.active_days import DaySet, get_day
from tests.integration.operations.audit.support import NOW_TS, FaultInjector, audited, summary
from tests.integration.workers.archive.support import World

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

ARCHIVED, ALL = 9, 16  # seqs 1 to 9 are in segments of 4 entries, 10 to 16 in items


async def make_chat(archive_world: World) -> list[Message]:
    new = (archive_world.old(seq, ts=NOW_TS + seq) for seq in range(ARCHIVED + 1, ALL + 1))
    sent = [*archive_world.texts(ARCHIVED), *new]
    await archive_world.put(*sent)
    await archive_world.archiver(segment_entries_max=4).archive_chat(archive_world.chat)
    return sent


async def test_consistent_chat_has_no_findings(archive_world: World) -> None:
    """The chat has segments, items, an edit of an archived message, and an expired message."""
    sent = await make_chat(archive_world)
    expired_at = int(archive_world.container.clock.time()) - 10
    expired = archive_world.old(ALL + 1, ts=NOW_TS + ALL + 1, expires_at=expired_at)
    later = archive_world.old(ALL + 2, ts=NOW_TS + ALL + 2)
    await archive_world.put(expired, later)
    await FaultInjector(archive_world).delete_items(expired)  # as TTL does
    edit = archive_world.old(ALL + 3, ts=NOW_TS + ALL + 3, kind="edit", body="new", target=7)
    await archive_world.put(edit)
    await archive_world.container.message_changes.apply(archive_world.chat, sent[6].ts, [edit])

    tally = await audited(archive_world)

    assert summary(tally) == []
    assert (tally.chats, tally.entries, tally.unverified) == (1, ALL + 3, 0)


async def test_messages_on_a_day_without_record_are_found(archive_world: World) -> None:
    """They are found in items and segments; the list of a user's messages would not have them."""
    sent = await make_chat(archive_world)
    day, later = get_day(sent[0].ts), get_day(NOW_TS)
    days = archive_world.container.active_days

    await days.put_many({archive_world.chat: DaySet(day, 1)})
    in_items = summary(await audited(archive_world))
    await days.put_many({archive_world.chat: DaySet(later, 1)})
    in_segments = summary(await audited(archive_world))
    await days.put_many({archive_world.chat: DaySet(day, 1).add(later)})

    assert in_items == [("day_missing", ARCHIVED + 1, ALL)]
    assert in_segments == [("day_missing", 1, ARCHIVED)]
    assert summary(await audited(archive_world)) == []


async def run_ahead(injector: FaultInjector, sent: list[Message]) -> None:
    await injector.delete_items(sent[11])
    await put_other(injector, 5000, sent[11].ts)


async def put_other(injector: FaultInjector, seq: int, ts: int) -> None:
    await injector.world.put(injector.world.old(seq, ts=ts, mid="M-other"))


Inject = Callable[[FaultInjector, list[Message]], Awaitable[Any]]
# By name: how the fault is injected, and the findings.
FAULTS: dict[str, tuple[Inject, list[tuple[str, int, int]]]] = {
    "item deleted": (lambda f, sent: f.delete_items(sent[12]), [("item_missing", 13, 13)]),
    "last items": (lambda f, sent: f.delete_items(*sent[12:15]), [("item_missing", 13, 15)]),
    "first items": (lambda f, sent: f.delete_items(*sent[9:11]), [("item_missing", 10, 11)]),
    "other body": (
        lambda f, sent: f.set_attribute(sent[12], "body", {"S": "something else"}),
        [("item_changed", 13, 13)],
    ),
    "other sender": (
        lambda f, sent: f.set_attribute(sent[12], "sender_id", {"S": "mallory"}),
        [("item_changed", 13, 13)],
    ),
    "item without mid": (
        lambda f, sent: f.set_attribute(sent[12], "mid", None),
        [("item_unreadable", 0, 0), ("item_missing", 13, 13)],
    ),
    "object deleted": (lambda f, _: f.delete_object(1), [("object_missing", 5, 8)]),
    "object of the same length": (
        lambda f, _: f.change_object(1, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        [("object_changed", 5, 8)],
    ),
    "longer object": (
        lambda f, _: f.change_object(1, lambda data: data + b"more"),
        [("object_changed", 5, 8)],
    ),
    "row deleted": (lambda f, _: f.delete_row(1), [("manifest_hole", 5, 8), ("orphan", 5, 8)]),
    "last row": (lambda f, _: f.delete_row(2), [("manifest_hole", 9, 9), ("orphan", 9, 9)]),
    "overlap": (lambda f, sent: f.add_segment(sent[2:6]), [("overlap", 3, 6)]),
    "segment beyond": (lambda f, sent: f.add_segment(sent[9:12]), [("manifest_top", 10, 12)]),
    "orphan": (lambda f, sent: f.add_segment(sent[1:3], with_row=False), [("orphan", 2, 3)]),
    "repeat": (lambda f, _: put_other(f, 13, NOW_TS + 100), [("repeated_item", 13, 13)]),
    "repeat of archived": (
        lambda f, sent: put_other(f, 6, sent[6].ts - 1),
        [("repeated_item", 6, 6)],
    ),
    "out of order": (run_ahead, [("out_of_order", 5000, 5000), ("item_missing", 12, 12)]),
    "same revision, another text": (
        lambda f, _: f.world.put(f.world.old(6, body="another text")),
        [("tiers_differ", 6, 6)],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_injected_fault_is_the_only_finding(archive_world: World, fault: str) -> None:
    """The finding has its kind, its seqs and advice."""
    sent = await make_chat(archive_world)
    inject, expected = FAULTS[fault]

    await inject(FaultInjector(archive_world), sent)

    tally = await audited(archive_world)
    assert summary(tally) == expected
    assert all(each.advice and each.meaning for each in tally.findings)


async def test_item_without_known_checksum_is_unverified_until_it_changes(
    archive_world: World,
) -> None:
    """An item without a checksum, or with that of another release, is not a finding."""
    sent = await make_chat(archive_world)
    injector = FaultInjector(archive_world)
    await injector.set_attribute(sent[12], "sum", None)
    await injector.set_attribute(sent[11], "sum", {"S": "1.77.00000000"})  # of another revision
    await injector.set_attribute(sent[10], "sum", {"S": "2.1.00000000"})  # of a later release
    before = await audited(archive_world)

    entry = archive_world.old(ALL + 1, ts=NOW_TS + ALL + 1, kind="edit", body="new", target=13)
    await archive_world.put(entry)
    await archive_world.container.message_changes.apply(archive_world.chat, sent[12].ts, [entry])
    after = await audited(archive_world)

    assert (summary(before), before.unverified) == ([], 3)
    assert (summary(after), after.unverified) == ([], 2)


async def test_object_that_is_new_or_recorded_is_not_an_orphan(archive_world: World) -> None:
    """An archiver may be writing a new object, and will delete a recorded one."""
    sent = await make_chat(archive_world)
    injector = FaultInjector(archive_world)
    recorded = await injector.add_segment(sent[0:5], with_row=False)
    await archive_world.container.manifests.add_orphan(recorded)
    stray = await injector.add_segment(sent[0:6], with_row=False)

    new = await audited(archive_world, orphan_age_s=3600)
    old = await audited(archive_world)

    assert summary(new) == []
    assert [each.where for each in old.findings] == [stray.key]


async def test_chat_of_many_pages_has_holes_found_at_page_boundaries(
    archive_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing and repeated items at the start and end of pages are found."""
    monkeypatch.setattr("chatserver.operations.audit.chat_audit.PAGE", 4)
    kept = [seq for seq in range(1, 32) if seq not in {1, 8, 9, 10, 11, 12, 13, 30}]
    sent = [archive_world.old(seq, ts=NOW_TS + seq * 10) for seq in kept]
    await archive_world.put(*sent, archive_world.old(20, ts=NOW_TS + 241, mid="M-other"))

    tally = await audited(archive_world)

    assert sorted(summary(tally)) == [
        ("item_missing", 1, 1),
        ("item_missing", 8, 13),
        ("item_missing", 30, 30),
        ("repeated_item", 20, 20),
    ]
    assert tally.entries == 31
