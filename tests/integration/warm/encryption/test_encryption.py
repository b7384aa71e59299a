"""Encryption of bodies in DynamoDB and S3: no plain text, no swaps, key rotation and deletion."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import CorruptData, Unavailable
from chatserver.features.attachments.model import File, UploadBounds
from chatserver.features.attachments.warm import Attachments
from chatserver.operations.audit.chat_audit import Tally
from chatserver.operations.audit.worker import make_audit
from chatserver.protocol import frames
from chatserver.warm.messages.messages import PersistItem
from tests.integration.warm.encryption.support import (
    LONG,
    OLD_TS,
    SECRET_WORD,
    Process,
    Vault,
    open_vault,
    text_of,
)
from workers.archive.container import ArchiveContainer

TEN = range(1, 11)


@pytest.fixture
async def vault(redis_url: str, dynamodb: str, s3: str, tmp_path: Path) -> AsyncIterator[Vault]:
    async with open_vault(redis_url, dynamodb, s3, tmp_path) as made:
        yield made


def edit(chat: str, seq: int, target: int, body: str) -> frames.Message:
    return frames.Message(
        seq, OLD_TS + seq * 1000, chat, f"E{seq}", "alice", f"e{seq}", "edit", body, target=target
    )


async def test_no_text_is_in_any_table_or_object(vault: Vault) -> None:
    """Messages, edits, long bodies, copies under legal hold and archive segments are encrypted."""
    async with vault.process() as process:
        chat, cold = process.chat, f"{process.chat}c"
        await process.write(*TEN)
        await process.write(11, body=LONG)
        await process.container.holds.put(chat, "court", "admin", 1.0)
        change = edit(chat, 12, 3, f"{SECRET_WORD} edited")
        await process.container.message_changes.apply(chat, OLD_TS + 3000, [change])
        await process.write(*TEN, chat=cold)
        await process.archive(cold)

        assert await vault.find_word() == []
        assert any(key.startswith("bodies/") for key in await vault.objects())
        assert any(key.startswith("archive/") for key in await vault.objects())
        texts = await process.bodies(chat)
        assert texts[2] == f"{SECRET_WORD} edited" and texts[10] == LONG
        assert texts[:2] == [text_of(1), text_of(2)]
        assert await process.bodies(cold) == [text_of(seq) for seq in TEN]
        copies = await process.container.holds.list_copies(chat, 10)
        assert [each.body for each in copies.items] == [text_of(3)]

    async with vault.process() as other:  # with separate caches
        assert (await other.bodies(chat))[10] == LONG
        assert await other.bodies(cold) == [text_of(seq) for seq in TEN]


PHOTO = frames.Attachment("01KAJ5W3N0TBJ8QW6X1V7ZC2YD", f"{SECRET_WORD}.png", "image/png", 3)
FILE = File(
    PHOTO.id, UserId("alice"), ChatId("c1"), PHOTO.name, PHOTO.type, 3, "00", OLD_TS // 10**6, None
)


async def put_named_files(process: Process) -> Attachments:
    """Store a file, and messages with its name in DynamoDB, under legal hold and in the archive."""
    chat, cold, container = process.chat, f"{process.chat}c", process.container
    rows = Attachments(container.dynamodb)
    await rows.create_file(FILE, UploadBounds(100, 10, 1000))
    await container.holds.put(chat, "court", "admin", 1.0)
    await process.write(1, attachments=[PHOTO])
    await process.write(2, body="", attachments=[PHOTO])
    change = edit(chat, 3, 1, "edited")
    await container.message_changes.apply(chat, OLD_TS + 1000, [change])
    await process.write(1, chat=cold, attachments=[PHOTO])
    await process.write(2, chat=cold, body="", attachments=[PHOTO])
    await process.write(3, chat=cold)
    await process.archive(cold)
    return rows


async def test_file_names_are_encrypted_like_bodies(vault: Vault) -> None:
    """They are encrypted in messages with and without a text, copies, segments and file items."""
    async with vault.process() as process:
        chat, cold = process.chat, f"{process.chat}c"
        rows = await put_named_files(process)

        assert await vault.find_word() == []
        assert await rows.find_file(FILE.id) == FILE
        assert [each.attachments for each in await process.read(chat)] == [[PHOTO]] * 2
        found = await process.read(cold)
        assert [each.attachments for each in found] == [[PHOTO], [PHOTO], []]
        assert [each.body for each in found] == [text_of(1), "", text_of(3)]
        (copy,) = (await process.container.holds.list_copies(chat, 10)).items
        assert (copy.body, copy.attachments) == (text_of(1), [PHOTO])
        (segment,) = await process.container.manifests.list_covering(cold, 1, 3)
        assert await process.container.segments.is_current(segment)

    assert await vault.keys().shred(1) == 1
    async with vault.process() as process:
        for each in [*await process.read(chat), *await process.read(cold)]:
            assert (each.body, each.attachments, each.shredded) == ("", [], True)
        rows = Attachments(process.container.dynamodb)
        assert await rows.find_file(FILE.id) == dataclasses.replace(FILE, name="")


async def test_find_word_finds_file_names_without_encryption(vault: Vault) -> None:
    """This proves that the check of the encryption tests detects plain file names everywhere."""
    async with vault.process(vault.off) as process:
        await put_named_files(process)

    found = {name.partition("/")[0].partition(":")[0] for name in await vault.find_word()}

    assert found == {"messages", "directory", "archive"}


async def test_find_word_finds_bodies_without_encryption(vault: Vault) -> None:
    """This proves that the check of the encryption tests detects plain bodies everywhere."""
    async with vault.process(vault.off) as process:
        cold = f"{process.chat}c"
        await process.write(1)
        await process.write(2, body=LONG)
        await process.write(*TEN, chat=cold)
        await process.archive(cold)

    found = await vault.find_word()

    assert {name.partition("/")[0].partition(":")[0] for name in found} == {
        "messages",
        "bodies",
        "archive",
    }


async def test_value_moved_to_another_item_or_object_is_refused(vault: Vault) -> None:
    """An intruder who can write to DynamoDB and S3 cannot swap the texts of messages."""
    async with vault.process() as process:
        chat = process.chat
        await process.write(1, 2)
        await process.write(3, 4, body=LONG)
        one, two = [await vault.item(chat, OLD_TS + seq * 1000) for seq in (1, 2)]
        await vault.put({**one, "body": two["body"], "sum": two["sum"]})
        three, four = sorted(key for key in await vault.objects() if key.startswith("bodies/"))
        data = (await vault.objects())[four]
        await vault.store.call("put_object", Key=three, Body=data)

        messages = process.container.messages
        with pytest.raises(CorruptData):
            await messages.list_after(chat, 0, 1)
        assert [each.body for each in await messages.list_after(chat, 1, 1)] == [text_of(2)]
        with pytest.raises(CorruptData, match="cannot be decrypted"):
            await messages.list_after(chat, 2, 1)
        (found, *_) = await process.container.archivable.list_checked(chat, 0, OLD_TS + 1500)
        assert (found.message, found.verdict) == (None, "wrong"), "the audit must name the item"


async def test_changed_value_is_refused(vault: Vault) -> None:
    """A flipped bit is detected."""
    async with vault.process() as process:
        await process.write(1)
        item = await vault.item(process.chat, OLD_TS + 1000)
        data = bytearray(base64.b64decode(item["body"]["B"]))
        data[-1] ^= 1
        await vault.put({**item, "body": {"B": bytes(data)}})

        with pytest.raises(CorruptData):
            await process.container.messages.list_after(process.chat, 0, 1)


async def test_history_may_have_plain_and_encrypted_messages(vault: Vault) -> None:
    """Messages from before encryption remain readable and can be changed."""
    async with vault.process(vault.off) as process:
        chat, cold = process.chat, f"{process.chat}c"
        await process.write(1, 2, 3)
        await process.write(4, body=LONG)
        await process.write(*range(1, 6), chat=cold)
        await process.archive(cold)
    async with vault.process() as process:
        await process.write(5, 6, chat=chat)
        await process.write(*range(6, 11), chat=cold)
        change = edit(chat, 7, 2, f"{SECRET_WORD} edited")
        await process.container.message_changes.apply(chat, OLD_TS + 2000, [change])
        await process.archive(cold)

        texts = await process.bodies(chat)
        assert texts == [
            text_of(1), f"{SECRET_WORD} edited", text_of(3), LONG, text_of(5), text_of(6),
        ]  # fmt: skip
        assert await process.bodies(cold) == [text_of(seq) for seq in TEN]
        assert "S" in (await vault.item(chat, OLD_TS + 1000))["body"]
        assert "B" in (await vault.item(chat, OLD_TS + 2000))["body"], "must be encrypted"


async def test_reaction_keeps_the_encrypted_body(vault: Vault) -> None:
    """A change of other attributes does not encrypt the body again."""
    async with vault.process() as process:
        chat, ts = process.chat, OLD_TS + 1000
        await process.write(1)
        before = await vault.item(chat, ts)
        reaction = frames.Message(
            2, OLD_TS + 2000, chat, "R2", "bob", "r2", "reaction", "👍", target=1
        )
        await process.container.message_changes.apply(chat, ts, [reaction])

        after = await vault.item(chat, ts)
        assert after["body"] == before["body"] and after["sum"] != before["sum"]
        (found,) = await process.container.archivable.list_checked(chat, 0, ts)
        assert found.verdict == "right" and found.message is not None
        assert found.message.reactions == {"bob": "👍"}


async def test_repeated_write_stores_the_same_bytes(vault: Vault) -> None:
    """A retry after a lost response does not change the item."""
    async with vault.process() as process:
        await process.write(1)
        before = await vault.item(process.chat, OLD_TS + 1000)
        await process.write(1)

        assert await vault.item(process.chat, OLD_TS + 1000) == before


async def test_tenants_have_separate_keys(vault: Vault) -> None:
    """With the same tables and key file, an item moved from another tenant is not readable."""
    async with vault.process(tenant="acme") as acme, vault.process(tenant="zeta") as zeta:
        await acme.write(1)
        await zeta.write(1, chat=acme.chat)
        item = await vault.item(f"acme/{acme.chat}", OLD_TS + 1000)
        moved = {"chatid": acme.chat, "sender_id": "alice", "receiver_id": "bob"}
        await vault.put(item | {name: {"S": f"zeta/{text}"} for name, text in moved.items()})

        assert [each.body for each in await acme.container.messages.list_after(acme.chat, 0, 1)]
        with pytest.raises(CorruptData):
            await zeta.container.messages.list_after(acme.chat, 0, 1)


async def test_rotation_under_load_loses_nothing(vault: Vault) -> None:
    """Writers and readers continue during rotations, and every text stays readable."""
    encryption = vault.encryption.model_copy(update={"cache_s": 1.0})
    async with vault.process(encryption) as process, vault.process(encryption) as reader:
        chat, is_done, versions = process.chat, asyncio.Event(), set[int]()

        async def write() -> None:
            seq = 0
            while len(versions) < 4 or seq < 200:
                await process.write(*range(seq + 1, seq + 26))
                seq += 25
                data = base64.b64decode((await vault.item(chat, OLD_TS + seq * 1000))["body"]["B"])
                versions.add(int.from_bytes(data[2:6], "big"))
                assert seq < 50_000, f"only versions {versions} were used"
            written.append(seq)
            is_done.set()

        async def read() -> None:
            while not is_done.is_set():
                found = await reader.bodies(chat)
                assert found == [text_of(seq) for seq in range(1, len(found) + 1)]

        async def rotate() -> None:
            async with vault.process(encryption) as operator:
                cipher = operator.container.dynamodb.cipher
                while not is_done.is_set():
                    newest = max([1, *versions])
                    await cipher.create_version(after=newest)  # type: ignore[union-attr]
                    await asyncio.sleep(0.05)

        written: list[int] = []
        async with asyncio.timeout(60):
            await asyncio.gather(write(), read(), rotate())

        total, found = written[0], list[str]()
        while len(found) < total:
            page = await reader.container.messages.list_after(chat, len(found), 200)
            assert page, f"no messages after {len(found)} of {total}"
            found += [each.body for each in page]
        assert found == [text_of(seq) for seq in range(1, total + 1)]


async def test_wrong_key_file_makes_messages_unavailable(vault: Vault, tmp_path: Path) -> None:
    """Reads and writes fail until the right keys are restored. Nothing is lost."""
    from chatserver.encryption.key_file import new_line

    async with vault.process() as process:
        await process.write(1)
    path = tmp_path / "other"
    path.write_text(new_line())
    wrong = vault.encryption.model_copy(update={"key_file": path})
    async with vault.process(wrong) as other:
        for call in (other.read(process.chat), other.write_once(2, chat=process.chat)):
            with pytest.raises(Unavailable, match="which wraps a data key, is missing"):
                await call

    async with vault.process() as again:
        await again.write(2, chat=process.chat)
        assert await again.bodies(process.chat) == [text_of(1), text_of(2)]


async def test_deleted_keys_leave_tombstones_everywhere(vault: Vault) -> None:
    """Readers get tombstones with `shredded`. Workers continue, and new messages are readable."""
    async with vault.process() as process:
        chat, cold = process.chat, f"{process.chat}c"
        await process.write(*TEN)
        await process.write(11, body=LONG)
        await process.container.holds.put(chat, "court", "admin", 1.0)
        change = edit(chat, 12, 3, "edited")
        await process.container.message_changes.apply(chat, OLD_TS + 3000, [change])
        await process.write(*TEN, chat=cold)
        await process.archive(cold)

    assert await vault.keys().shred(1) == 1
    assert await vault.keys().shred(2) == 0

    async with vault.process() as process:
        for each in [*await process.read(chat), *await process.read(cold)]:
            assert (each.body, each.deleted, each.shredded) == ("", True, True)
            assert each.sender == "alice", "the sender must not be encrypted"
        assert len(await process.read(chat)) == 11 and len(await process.read(cold)) == 10
        copies = await process.container.holds.list_copies(chat, 10)
        assert [(each.body, each.shredded) for each in copies.items] == [("", True)]
        checked = await process.container.archivable.list_checked(chat, 0, OLD_TS * 2)
        assert {each.verdict for each in checked} == {"unverified"}
        # Changes of unreadable messages have no effect. New messages have a new key.
        await process.container.message_changes.apply(chat, OLD_TS + 1000, [edit(chat, 13, 1, "x")])
        await process.write(14, chat=f"{chat}n")
        await process.archive(chat)

        found = await process.read(chat)
        assert [each.seq for each in found] == list(range(1, 12))
        assert all(each.shredded for each in found), "not all archived messages are shredded"
        tally = Tally()
        audit = make_audit(
            process.container.settings,
            process.container.hot,
            process.container.dynamodb,
            vault.store,
            SystemClock(),
            None,
        )
        for name in (chat, cold):
            await audit.audit_chat(ChatId(name), tally, no_progress)
        assert (tally.findings, tally.failed) == ([], {})
        assert (tally.entries, tally.shredded, tally.unverified) == (21, 21, 0)
    newest = await vault.keys().find_newest()
    assert newest is not None and newest.version == 2 and newest.wrapped is not None


async def no_progress() -> None:
    """Ignore progress."""


async def test_old_image_of_the_stream_is_decrypted(vault: Vault) -> None:
    """An item that TTL removed too early is restored from its encrypted old image."""
    async with vault.process() as process:
        await process.write(1)
        old = await vault.item(process.chat, OLD_TS + 1000)
        table, key = f"{vault.warm.table_prefix}messages", {k: old[k] for k in ("chatid", "ts")}
        await vault.raw.call("delete_item", {"TableName": table, "Key": key})

        await process.container.get(ArchiveContainer).removals.handle([old])

        assert await process.bodies(process.chat) == [text_of(1)]
        assert await vault.find_word() == []


async def test_audit_compares_decrypted_texts(vault: Vault) -> None:
    """The audit reports an item that differs from its encrypted segment."""
    async with vault.process() as process:
        chat, container = process.chat, process.container
        await process.write(*TEN)
        await process.archive(chat)
        await process.write(3, body="another text")
        audit = make_audit(
            container.settings, container.hot, container.dynamodb, vault.store, SystemClock(), None
        )
        tally = Tally()

        await audit.audit_chat(ChatId(chat), tally, no_progress)

        assert [(each.kind, each.first) for each in tally.findings] == [("tiers_differ", 3)]
        assert tally.shredded == 0


async def test_replayed_and_late_entries_are_encrypted(vault: Vault) -> None:
    """Tested are a replayed dead letter and an edit of an archived message."""
    async with vault.process() as process:
        chat, changes = process.chat, process.container.message_changes
        await process.write(*TEN)
        await process.archive(chat)
        await changes.apply(chat, OLD_TS + 4000, [edit(chat, 11, 4, f"{SECRET_WORD} late")])
        lost = process.made(1, f"{chat}r")
        tombstone = msgspec.structs.replace(lost, body="", deleted=True, rev=1)
        await process.container.messages.put_batch([PersistItem(tombstone, None)], 20)

        assert await changes.replay(PersistItem(lost, "bob"))
        assert await changes.replay(PersistItem(lost, "bob")), "a second replay failed"

        assert await vault.find_word() == []
        assert await process.bodies(f"{chat}r") == [text_of(1)]
        assert (await process.bodies(chat))[3] == f"{SECRET_WORD} late"
        await process.archive(chat)
        assert (await process.bodies(chat))[3] == f"{SECRET_WORD} late"
        assert await vault.find_word() == []
