"""Active days of chats: each day is recorded before its first message is stored."""

from __future__ import annotations

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.errors import Unavailable
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.warm.messages.active_days import DAY_US, DaySet
from chatserver.warm.messages.messages import PersistItem
from tests.integration.warm.support import message
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    is_drained,
    make_direct,
    make_group,
    persister_of,
    running,
    stored_of,
)
from tests.support.servers.processes import eventually
from workers.persist.active_day_recorder import DayRecorder
from workers.persist.batch_changes import EntryWrite

DAY = 20_000


def work(seq: int, day: int, chat: str = "d-1", kind: str = "text") -> EntryWrite:
    """Create the work item of a message sent on a day."""
    entry = message(seq, chat, ts=day * DAY_US + seq, kind=kind)
    raw = CommittedMessage(entry.seq, entry.ts, UserId("bob"), b"")
    return EntryWrite(GatewayId("gw"), raw, PersistItem(entry, "bob"))


async def find(container: StorageContainer, chat: str = "d-1") -> DaySet | None:
    return (await container.active_days.find_many([chat])).get(chat)


async def test_active_day_is_written_once_per_chat(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any number of messages and batches. Only messages count."""
    recorder, put, written = DayRecorder(container.active_days), container.active_days.put_many, 0

    async def count(changes: dict[str, DaySet]) -> None:
        nonlocal written
        written += len(changes)
        await put(changes)

    monkeypatch.setattr(container.active_days, "put_many", count)

    await recorder.record([work(1, DAY), work(2, DAY), work(3, DAY + 2)])
    first = await find(container)
    await recorder.record([work(4, DAY + 2), work(5, DAY + 3, kind="edit")])
    await recorder.record([work(6, DAY + 4)])
    await recorder.record([work(7, DAY + 4), work(8, DAY + 4)])

    assert first == DaySet(DAY, 0b101)
    assert await find(container) == DaySet(DAY, 0b10101)
    assert written == 2


async def test_next_worker_keeps_recorded_days(container: StorageContainer) -> None:
    """A worker reads the stored days first, also after it lost its lease."""
    recorder, other = DayRecorder(container.active_days), DayRecorder(container.active_days)
    await recorder.record([work(1, DAY)])
    await other.record([work(2, DAY + 1)])

    recorder.clear()
    await recorder.record([work(3, DAY + 2)])

    assert await find(container) == DaySet(DAY, 0b111)


async def test_chat_with_earlier_messages_has_unknown_days(container: StorageContainer) -> None:
    """Earlier releases did not record days."""
    await DayRecorder(container.active_days).record([work(7, DAY)])

    assert await find(container) == DaySet(DAY, 1, has_earlier=True)


async def test_message_is_stored_only_after_its_day(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the day cannot be written, the worker retries and stores no message."""
    audience, days = await make_direct(container, ALICE, BOB), container.active_days
    put, attempts = days.put_many, 0

    async def put_late(changes: dict[str, DaySet]) -> None:
        nonlocal attempts
        attempts += 1
        assert await stored_of(container, audience.chat) == []
        if attempts < 3:
            raise Unavailable("temporarily")
        await put(changes)

    monkeypatch.setattr(days, "put_many", put_late)
    await Gateway(container.hot).send(audience, "hello", sender=ALICE)

    async with running(persister_of(container).run(), "persist"):
        await eventually(
            lambda: is_drained(container), deadline_s=60, what="all messages are stored"
        )

    assert attempts == 3
    assert [each.body for each in await stored_of(container, audience.chat)] == ["hello"]
    assert await find(container, audience.chat) is not None


async def test_group_has_one_item_for_all_members(container: StorageContainer) -> None:
    """There are no items for each member."""
    audience = await make_group(container, ALICE, BOB, CAROL)
    await Gateway(container.hot).send(audience, "one", "two", sender=ALICE)

    async with running(persister_of(container).run(), "persist"):
        await eventually(
            lambda: is_drained(container), deadline_s=60, what="all messages are stored"
        )

    found = await find(container, ChatId(audience.chat))
    assert found is not None and found.bits.bit_count() in (1, 2)  # two messages around midnight
    assert not found.has_earlier
