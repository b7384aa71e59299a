"""The audit reports each injected fault, and nothing for a consistent chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from chatserver.protocol.frames import Message
from chatserver.warm.messages.active_days import ActiveDays, get_day
from tests.integration.operations.audit.support import NOW_TS, FaultInjector, audited, summary
from tests.integration.workers.archive.support import World

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

ARCHIVED, ALL = 9, 16  # seqs 1 to 9 are in segments of 4 entries, 10 to 16 in items


async def make_chat(archive_world: World) -> list[Message]:
    """Make a chat with three segments and seven items."""
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
    await FaultInjector(archive_world).delete_item(expired)  # as TTL does
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

    await days.put_many({archive_world.chat: ActiveDays(day, 1)})
    in_items = summary(await audited(archive_world))
    await days.put_many({archive_world.chat: ActiveDays(later, 1)})
    in_segments = summary(await audited(archive_world))
    await days.put_many({archive_world.chat: ActiveDays(day, 1).add(later)})

    assert in_items == [("day_missing", ARCHIVED + 1, ALL)]
    assert in_segments == [("day_missing", 1, ARCHIVED)]
    assert summary(await audited(archive_world)) == []


async def delete_item(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).delete_item(sent[12])


async def delete_last_items_but_one(archive_world: World, sent: list[Message]) -> None:
    for entry in sent[12:15]:
        await FaultInjector(archive_world).delete_item(entry)


async def delete_first_items(archive_world: World, sent: list[Message]) -> None:
    for entry in sent[9:11]:
        await FaultInjector(archive_world).delete_item(entry)


async def change_body(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).set_attribute(sent[12], "body", {"S": "something else"})


async def change_sender(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).set_attribute(sent[12], "sender_id", {"S": "mallory"})


async def break_item(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).set_attribute(sent[12], "mid", None)


async def delete_object(archive_world: World, _: list[Message]) -> None:
    await FaultInjector(archive_world).delete_object((await archive_world.segments())[1])


async def change_object(archive_world: World, _: list[Message]) -> None:
    await FaultInjector(archive_world).change_object((await archive_world.segments())[1])


async def extend_object(archive_world: World, _: list[Message]) -> None:
    await FaultInjector(archive_world).extend_object((await archive_world.segments())[1])


async def delete_row(archive_world: World, _: list[Message]) -> None:
    await FaultInjector(archive_world).delete_row((await archive_world.segments())[1])


async def delete_last_row(archive_world: World, _: list[Message]) -> None:
    await FaultInjector(archive_world).delete_row((await archive_world.segments())[2])


async def overlap(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).add_segment(sent[2:6])


async def segment_beyond(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).add_segment(sent[9:12])


async def orphan(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).add_segment(sent[1:3], with_row=False)


async def repeat(archive_world: World, sent: list[Message]) -> None:
    await archive_world.put(archive_world.old(13, ts=NOW_TS + 100, mid="M-other"))


async def repeat_of_archived(archive_world: World, sent: list[Message]) -> None:
    await archive_world.put(archive_world.old(6, ts=sent[6].ts - 1, mid="M-other"))


async def run_ahead(archive_world: World, sent: list[Message]) -> None:
    await FaultInjector(archive_world).delete_item(sent[11])
    await archive_world.put(archive_world.old(5000, ts=sent[11].ts, mid="M-other"))


async def other_text_over_segment(archive_world: World, sent: list[Message]) -> None:
    await archive_world.put(archive_world.old(6, body="same revision, another text"))


FAULTS: dict[Callable[[World, list[Message]], Awaitable[None]], list[tuple[str, int, int]]] = {
    delete_item: [("item_missing", 13, 13)],
    delete_last_items_but_one: [("item_missing", 13, 15)],
    delete_first_items: [("item_missing", 10, 11)],
    change_body: [("item_changed", 13, 13)],
    change_sender: [("item_changed", 13, 13)],
    break_item: [("item_unreadable", 0, 0), ("item_missing", 13, 13)],
    delete_object: [("object_missing", 5, 8)],
    change_object: [("object_changed", 5, 8)],
    extend_object: [("object_changed", 5, 8)],
    delete_row: [("manifest_hole", 5, 8), ("orphan", 5, 8)],
    delete_last_row: [("manifest_hole", 9, 9), ("orphan", 9, 9)],
    overlap: [("overlap", 3, 6)],
    segment_beyond: [("manifest_top", 10, 12)],
    orphan: [("orphan", 2, 3)],
    repeat: [("repeated_item", 13, 13)],
    repeat_of_archived: [("repeated_item", 6, 6)],
    run_ahead: [("out_of_order", 5000, 5000), ("item_missing", 12, 12)],
    other_text_over_segment: [("tiers_differ", 6, 6)],
}


@pytest.mark.parametrize("inject", FAULTS, ids=lambda inject: inject.__name__)
async def test_injected_fault_is_the_only_finding(
    archive_world: World, inject: Callable[[World, list[Message]], Awaitable[None]]
) -> None:
    """The finding has its kind, its seqs and advice."""
    sent = await make_chat(archive_world)
    await inject(archive_world, sent)

    tally = await audited(archive_world)

    assert summary(tally) == FAULTS[inject]
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
