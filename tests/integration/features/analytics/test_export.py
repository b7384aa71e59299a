"""Export: messages and their changes reach the Parquet files exactly once."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from chatserver.errors import Unavailable
from chatserver.features.analytics.model import Changes, Unit
from chatserver.features.analytics.worker import exporter
from chatserver.features.analytics.worker.export_passes import ExportPass, make_lease
from chatserver.features.analytics.worker.export_unit_reader import ExportUnitReader
from chatserver.hot.worker_leases import Lease
from chatserver.protocol.frames import Ai, Attachment
from tests.integration.features.analytics.support import (
    OLD_TS,
    RECENT_TS,
    Lake,
    open_lake,
    texts_of,
)
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import settings_for

pytestmark = pytest.mark.asyncio(loop_scope="session")


class HeldLease(Lease):
    """A lease that reports that it is held, as seen by a process that paused until it expired."""

    def __init__(self) -> None:
        pass

    async def hold(self) -> bool:
        return True


def utc(ts: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ts / 1_000_000, datetime.UTC)


async def test_archived_messages_are_exported_once_by_date(lake: Lake) -> None:
    """Chats share the files of a batch. Messages that are not archived are not exported."""
    chats = [await lake.open_direct() for _ in range(3)]
    for chat in chats:
        await lake.put(*chat.texts(100), chat.text(101, ts=RECENT_TS))
    await lake.archive(*chats)

    tally = await lake.export()

    assert [lake.seqs(chat) for chat in chats] == [list(range(1, 101))] * 3
    rows = lake.rows()
    assert {row["date"] for row in rows} == {"2020-09-13", "2020-09-14"}
    assert all(row["ts"].date().isoformat() == row["date"] for row in rows)
    assert {row["tenant"] for row in rows} == {"default"}
    assert len(lake.files()) == tally.files == 2
    assert all(key.startswith("analytics/v1/date=2020-09-1") for key in lake.files())


async def test_columns_describe_the_message(lake: Lake) -> None:
    """The columns include sender, receiver, sizes, reply, reactions, edit time and AI."""
    chat = await lake.open_direct()
    files = [Attachment("f1", "a.txt", "text/plain", 70), Attachment("f2", "b", "text/plain", 5)]
    full = chat.text(
        2, chat.b, body="⟨é⟩ two", reply_to=1, attachments=files, edited_ts=OLD_TS + 5,
        edited_seq=4, rev=4, reactions={chat.a: "+1", chat.b: "-1"}, ai=Ai("echo"),
    )  # fmt: skip
    await lake.put(chat.text(1), full, chat.text(3, kind="note"))
    await lake.archive(chat)

    await lake.export()

    first, second, third = lake.rows(chat)
    assert (first["sender"], first["receiver"]) == (chat.a, chat.b)
    assert second == {
        "chat": chat.id, "chat_kind": "direct", "seq": 2, "ts": utc(full.ts), "sender": chat.b,
        "receiver": chat.a, "kind": "text", "body": "⟨é⟩ two", "body_chars": 7, "attachments": 2,
        "attachment_bytes": 75, "reply_to": 1, "reactions": 2, "is_ai": True, "is_deleted": False,
        "edited_at": utc(OLD_TS + 5), "date": "2020-09-13", "tenant": "default",
    }  # fmt: skip
    assert third["kind"] == "note"


@pytest.mark.parametrize("lake", [False], indirect=True, ids=["no bodies"])
async def test_bodies_are_exported_only_with_the_setting(lake: Lake) -> None:
    """By default the body column is empty, and the length is exported."""
    chat, _ = await lake.export_chat(5)

    assert texts_of(lake.rows(chat)) == [None] * 5
    assert [row["body_chars"] for row in lake.rows(chat)] == [10] * 5


async def test_second_export_reads_and_writes_nothing(lake: Lake) -> None:
    """A full export reads the segments again but changes no file."""
    await lake.export_chat(50)
    before = lake.files()

    again = await lake.export()
    everything = await lake.export(is_all=True)

    assert (again.units, again.files) == (0, 0)
    assert (everything.units, everything.files) == (2, 0)
    assert lake.files() == before


async def test_later_messages_and_extended_segments_are_added(lake: Lake) -> None:
    """An exported segment is replaced by a larger one, and no row is repeated."""
    chat, _ = await lake.export_chat(10)

    await lake.put(*chat.texts(40, start=11))
    await lake.archive(chat, segment_entries_min=30)
    first = (await lake.container.manifests.list_covering(chat.id, 1, 50))[0]
    await lake.export()

    assert first.last > 10  # the segment was extended
    assert lake.seqs(chat) == list(range(1, 51))


async def test_edit_delete_and_reaction_of_archived_messages_rewrite_their_files(
    lake: Lake,
) -> None:
    """Only files of the affected dates are written, and no file has the old text."""
    chat, other = await lake.open_direct(), await lake.open_direct()
    sent = chat.texts(200)
    await lake.put(*sent)
    await lake.put(*other.texts(200))
    await lake.archive(chat, other)
    await lake.export()
    before = lake.files()
    recent = {"ts": RECENT_TS}
    edit = chat.text(201, kind="edit", body="edited", target=1, **recent)
    delete = chat.text(202, kind="delete", body="", target=2, ts=RECENT_TS + 1)
    react = chat.text(203, kind="reaction", body="+1", target=3, ts=RECENT_TS + 2)
    for target, entry in zip(sent, (edit, delete, react), strict=False):
        await lake.change(target, entry)
    await lake.archive(chat)

    tally = await lake.export()

    one, two, three = lake.rows(chat)[:3]
    assert (one["body"], one["edited_at"]) == ("edited", utc(RECENT_TS))
    assert (two["is_deleted"], two["sender"], two["body"], two["body_chars"]) == (
        True, None, None, 0,
    )  # fmt: skip
    assert three["reactions"] == 1
    assert lake.seqs(chat) == lake.seqs(other) == list(range(1, 201))
    changed = [key for key, data in lake.files().items() if data != before[key]]
    assert tally.files == len(changed) == 1
    assert "text 2 ⟨é⟩" not in texts_of(lake.rows(chat))
    assert sorted(lake.files()) == sorted(before)


async def test_expiring_messages_are_exported_without_content(lake: Lake) -> None:
    """TTL expiry does not notify the export, so it never exports the text."""
    chat = await lake.open_direct()
    await lake.put(chat.text(1, expires_at=9_000_000_000), chat.text(2))

    await lake.export(with_warm=True)

    one, two = lake.rows(chat)
    assert (one["is_deleted"], one["sender"], one["body"]) == (True, None, None)
    assert (two["is_deleted"], two["body"]) == (False, "text 2 ⟨é⟩")


async def test_warm_messages_are_exported_on_demand_and_once(lake: Lake) -> None:
    """A later run of the archive keeps their file and applies the changes to it."""
    chat = await lake.open_direct()
    sent = chat.texts(60)
    await lake.put(*sent)
    await lake.export(with_warm=True)
    early = lake.rows(chat)

    await lake.change(sent[0], chat.text(61, kind="edit", body="edited", target=1))
    await lake.put(chat.text(62))
    await lake.export(with_warm=True)
    edited = lake.rows(chat)
    await lake.archive(chat)
    files = lake.files()
    tally = await lake.export()

    assert [row["seq"] for row in early] == list(range(1, 61))
    assert [row["seq"] for row in edited] == [*range(1, 61), 62]
    assert edited[0]["body"] == "edited"
    assert (tally.files, tally.postponed) == (0, 0)
    assert lake.files() == files
    assert (await lake.export()).units == 0


async def test_change_stored_but_not_applied_in_dynamodb_is_exported(lake: Lake) -> None:
    """The change is stored before the message is changed, and an export may run in between."""
    chat = await lake.open_direct()
    await lake.put(*chat.texts(3))
    await lake.export(with_warm=True)
    await lake.put(chat.text(4, kind="delete", body="", target=2))

    await lake.export(with_warm=True)

    assert [row["is_deleted"] for row in lake.rows(chat)] == [False, True, False]
    assert "text 2 ⟨é⟩" not in texts_of(lake.rows(chat))


async def test_change_of_a_postponed_message_is_exported_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit of the deletion stays open until the message is deleted in its file."""
    chat = await lake.open_direct()
    await lake.put(*chat.texts(3))
    await lake.export(with_warm=True)
    await lake.put(chat.text(4, kind="delete", body="", target=2), chat.text(5))
    find_version = ExportUnitReader.find_version

    async def find_other_version(self: ExportUnitReader, unit: Unit, changes: Changes) -> str:
        found = await find_version(self, unit, changes)
        return "another" if unit.first == 1 else found

    with monkeypatch.context() as patch:
        patch.setattr(ExportUnitReader, "find_version", find_other_version)
        tally = await lake.export(with_warm=True)
    between = lake.rows(chat)
    await lake.export(with_warm=True)

    assert tally.postponed == 2
    assert [row["is_deleted"] for row in between] == [False] * 4
    assert [row["is_deleted"] for row in lake.rows(chat)] == [False, True, False, False]
    assert lake.seqs(chat) == [1, 2, 3, 5]


async def test_damaged_file_does_not_block_the_others(lake: Lake) -> None:
    """Other files are written. When the damaged file is deleted, a full export restores it."""
    (chat, sent), other = await lake.export_chat(3), await lake.open_direct()
    (key,) = lake.files()
    await lake.container.store.call("put_object", Key=key, Body=b"no Parquet file")
    await lake.change(sent[0], chat.text(4, kind="delete", body="", target=1, ts=RECENT_TS))
    await lake.put(*other.texts(3))
    await lake.archive(chat, other)

    tally = await lake.export()

    assert (tally.files, tally.postponed) == (1, 1)
    await lake.container.store.call("delete_object", Key=key)
    assert lake.seqs(other) == [1, 2, 3]
    await lake.export(is_all=True)
    assert [row["is_deleted"] for row in lake.rows(chat)] == [True, False, False]
    await lake.container.store.call("delete_object", Key=key)
    assert (await lake.export(is_all=True)).files == 1  # including units recorded as exported
    assert lake.seqs(chat) == lake.seqs(other) == [1, 2, 3]


async def test_batches_have_a_maximum_of_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is written as soon as it is full."""
    monkeypatch.setattr(exporter, "ROWS_MAX", 50)
    chats = [await lake.open_direct() for _ in range(3)]
    for chat in chats:
        await lake.put(*chat.texts(60))
    await lake.archive(*chats)

    await lake.export()

    assert [lake.seqs(chat) for chat in chats] == [list(range(1, 61))] * 3
    batches = {key.rsplit("/", 1)[1] for key in lake.files()}
    assert len(batches) >= 3


async def test_export_during_another_export_is_refused(lake: Lake) -> None:
    first = make_lease(lake.container, "first")
    async with first.release_on_exit():
        assert await first.claim()
        chat = await lake.open_direct()
        await lake.put(*chat.texts(3))
        await lake.archive(chat)

        with pytest.raises(Unavailable, match="another process is exporting"):
            await ExportPass(lake.container, make_lease(lake.container, "second")).run(
                with_warm=False
            )

    assert lake.files() == {}


async def test_paused_export_writes_no_outdated_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its read and its write, another process exports a deletion of a message."""
    chat = await lake.open_direct()
    sent = chat.texts(5)
    await lake.put(*sent)
    await lake.archive(chat)
    original = exporter.Exporter._write_batch
    is_first = True

    async def delete_and_export() -> None:
        entry = chat.text(6, kind="delete", body="", target=2, ts=RECENT_TS)
        await lake.change(sent[1], entry)
        await lake.archive(chat)
        await ExportPass(lake.container, HeldLease()).run(with_warm=False)

    async def write_after_other_export(self: Any, batch: str, units: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            await delete_and_export()
        return await original(self, batch, units)

    monkeypatch.setattr(exporter.Exporter, "_write_batch", write_after_other_export)

    tally = await lake.export()

    assert tally.postponed == 1
    assert [row["is_deleted"] for row in lake.rows(chat)] == [False, True, False, False, False]
    await lake.export()
    assert lake.seqs(chat) == [1, 2, 3, 4, 5]
    assert (await lake.export()).units == 0


@pytest_asyncio.fixture(loop_scope="session")
async def two_tenants(lake_redis: str, dynamodb: str, s3: str) -> AsyncIterator[tuple[Lake, Lake]]:
    """Two deployments that share tables and a bucket; each has its own Redis database."""
    database = lake_redis.rpartition("/")[0]
    warm, cold = settings_for(dynamodb), cold_settings(s3)
    red, blue = (warm.model_copy(update={"tenant": name}) for name in ("red", "blue"))
    async with (
        open_lake(f"{database}/1", red, cold.for_tenant("red")) as one,
        open_lake(f"{database}/2", blue, cold.for_tenant("blue")) as two,
    ):
        yield one, two


async def test_tenants_have_separate_files(two_tenants: tuple[Lake, Lake]) -> None:
    """A tenant's files are below its prefix, and exports of other tenants do not change them."""
    for lake in two_tenants:
        chat = await lake.open_direct()
        await lake.put(*chat.texts(3))
        await lake.archive(chat)

    red, blue = two_tenants
    await red.export()
    only_red = set(red.files())
    await blue.export()

    prefix = "analytics/v1/date=2020-09-13/tenant"
    assert {key.rsplit("/", 1)[0] for key in only_red} == {f"red/{prefix}=red"}
    keys = {key.rsplit("/", 1)[0] for key in red.files()}
    assert keys == {f"red/{prefix}=red", f"blue/{prefix}=blue"}
    assert {(row["tenant"], row["seq"]) for row in red.rows()} == {
        (tenant, seq) for tenant in ("red", "blue") for seq in (1, 2, 3)
    }
