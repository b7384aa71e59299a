"""Re-encryption of stored data, the commands, and the check against disabling encryption."""

from __future__ import annotations

import base64
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import UserId
from chatserver.encryption.key_file import new_line
from chatserver.encryption.key_ring import KeyRing
from chatserver.errors import ConfigError
from chatserver.features.companions.model import SessionSummary
from chatserver.features.companions.user_memory import Entry
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.companions.warm.user_memories import MemoryRows
from chatserver.features.social.model import Post
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.operations.tenants.tenant_stores import get_tenant_settings
from chatserver.protocol import codec
from chatserver.warm.dynamo.batches import put_items
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from tests.integration.warm.encryption.support import (
    LONG,
    OLD_TS,
    SECRET_WORD,
    Process,
    Vault,
    open_vault,
    text_of,
)
from workers.archive.reencryption import Reencryption

TEN = range(1, 11)
ADA = CompanionId(UserId("ai-ada"))
MEMORY_ENTRY = Entry("f1", "fact", SECRET_WORD, (), 1, 1, 4_000_000_000_000)
POST = Post("01KAJ5W3N0TBJ8QW6X1V7ZC2YD", "alice", SECRET_WORD, 1)  # type: ignore[arg-type]


@pytest.fixture
async def vault(redis_url: str, dynamodb: str, s3: str, tmp_path: Path) -> AsyncIterator[Vault]:
    async with open_vault(redis_url, dynamodb, s3, tmp_path) as made:
        yield made


def reencryption_of(process: Process) -> Reencryption:
    return Reencryption(process.container, RateLimiter(None, SystemClock()))


async def fill(process: Process) -> None:
    """Write one value of each encrypted kind."""
    container, chat, cold = process.container, process.chat, f"{process.chat}c"
    await process.write(*TEN)
    await process.write(11, body=LONG)
    await process.write(*TEN, chat=cold)
    await process.archive(cold)
    await container.holds.copy_versions([process.made(5)])
    await Summaries(container.dynamodb).put(
        chat,  # type: ignore[arg-type]
        SessionSummary(1, 2, SECRET_WORD, 1),  # type: ignore[arg-type]
    )
    await SocialPosts(container.dynamodb).create_post(POST)
    await MemoryRows(container.dynamodb).update(
        UserId("alice"), ADA, lambda memory: dataclasses.replace(memory, entries=(MEMORY_ENTRY,))
    )


async def check_readable(process: Process, chat: str) -> None:
    """Check that everything written by `fill` is readable."""
    container = process.container
    assert await process.bodies(chat) == [*(text_of(seq) for seq in TEN), LONG]
    assert await process.bodies(f"{chat}c") == [text_of(seq) for seq in TEN]
    assert [each.body for each in (await container.holds.list_copies(chat, 9)).items] == [
        text_of(5)
    ]
    summary = await Summaries(container.dynamodb).find(chat)  # type: ignore[arg-type]
    assert summary is not None and summary.text == SECRET_WORD
    posts = SocialPosts(container.dynamodb)
    assert await posts.get_post(POST.author, POST.id) == POST
    rows = MemoryRows(container.dynamodb)
    assert (await rows.get(UserId("alice"), ADA)).entries == (MEMORY_ENTRY,)


async def versions_in(vault: Vault) -> set[int]:
    """Return the data key versions of the stored values."""
    found = set()
    for table, item in await vault.scan():
        for name, value in item.items():
            if "B" in value and (table, name) != ("directory", "wrapped"):
                found.add(int.from_bytes(base64.b64decode(value["B"])[2:6], "big"))
    for key, data in (await vault.objects()).items():
        if key.startswith("bodies/"):
            found.add(int.from_bytes(data[2:6], "big"))
        else:
            lines = data.removesuffix(b"\n").split(b"\n")
            found.add(int.from_bytes(base64.b64decode(lines[-1].strip(b'"'))[2:6], "big"))
    return found


async def test_reencryption_encrypts_all_plain_values(vault: Vault) -> None:
    """They are items, long bodies, segments, copies, summaries and posts.

    A second run changes nothing.
    """
    async with vault.process(vault.off) as plain:
        await fill(plain)
        # This copy has the format of earlier releases.
        old = codec.encode(plain.made(6)).decode()
        await vault.put({"chatid": {"S": f"{plain.chat}o#held"}, "ts": {"N": "1"},
                         "seq": {"N": "6"}, "copy": {"S": old}})  # fmt: skip
        # In a real deployment, the directory has an item of this chat.
        await put_chat_item(vault, f"{plain.chat}c")
    assert len(await vault.find_word()) == 17

    async with vault.process() as process:
        done = await reencryption_of(process).run(lambda _: None)

        assert await vault.find_word() == []
        assert (done.items, done.objects, done.segments, done.refused) == (16, 1, 1, 0)
        await check_readable(process, plain.chat)
        again = await reencryption_of(process).run(lambda _: None)
        assert (again.items, again.objects, again.segments) == (0, 0, 0)
        (copy,) = (await process.container.holds.list_copies(f"{plain.chat}o", 9)).items
        assert copy.body == text_of(6)
        await process.archive(f"{plain.chat}c")  # archiving still works


async def put_chat_item(vault: Vault, chat: str) -> None:
    """Write the directory item with which scans find a chat."""
    item = {"PK": {"S": f"c#{chat}"}, "SK": {"S": f"c#{chat}"}, "version": {"N": "1"}}
    table = f"{vault.warm.table_prefix}directory"
    await vault.raw.call("put_item", {"TableName": table, "Item": item})


async def test_values_with_an_older_key_are_reencrypted_with_the_current_one(vault: Vault) -> None:
    """After a rotation and the run, no value has the old version."""
    async with vault.process() as process:
        await fill(process)
        await put_chat_item(vault, f"{process.chat}c")
        assert await versions_in(vault) == {1}
    async with vault.process() as second:
        cipher = second.container.dynamodb.cipher
        assert isinstance(cipher, KeyRing)
        await cipher.create_version()

        await reencryption_of(second).run(lambda _: None)

        assert await versions_in(vault) == {2}
        await check_readable(second, process.chat)


class Cli:
    """Runs commands with the settings of a deployment."""

    def __init__(self, vault: Vault, **settings: str) -> None:
        warm, cold = vault.warm, vault.cold
        assert warm.secret_key is not None
        secret = warm.secret_key.get_secret_value()
        self.environment = {
            **os.environ,
            "CHAT_REDIS_URL": vault.redis_url,
            "CHAT_WARM_ENDPOINT": str(warm.endpoint),
            "CHAT_WARM_ACCESS_KEY": str(warm.access_key),
            "CHAT_WARM_SECRET_KEY": secret,
            "CHAT_WARM_TABLE_PREFIX": warm.table_prefix,
            "CHAT_COLD_ENDPOINT": str(cold.endpoint),
            "CHAT_COLD_BUCKET": cold.bucket,
            "CHAT_COLD_ACCESS_KEY": str(warm.access_key),
            "CHAT_COLD_SECRET_KEY": secret,
            "CHAT_ENCRYPTION_PROVIDER": "file",
            "CHAT_ENCRYPTION_KEY_FILE": str(vault.encryption.key_file),
            **settings,
        }

    def run(self, *args: str, answer: str = "", **env: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "chatserver.cli.main", "encryption", *args],
            env={**self.environment, **env}, capture_output=True, text=True, input=answer,
            timeout=120, check=False,
        )  # fmt: skip


async def test_commands_rotate_rewrap_and_shred(vault: Vault) -> None:
    """These are the procedures of an operator, and refused calls."""
    cli = Cli(vault)
    async with vault.process() as process:
        await process.write(1)

    assert "created version 2" in cli.run("rotate").stdout
    async with vault.process() as second:
        await second.write(2, chat=process.chat)
        assert await second.bodies(process.chat) == [text_of(1), text_of(2)]
    shown = cli.run("status")
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [
        ["2", "active"],
        ["1", "active"],
    ]
    path = vault.encryption.key_file
    assert path is not None
    old, new = path.read_text().strip(), cli.run("new-key").stdout.strip()
    assert old not in shown.stdout + shown.stderr
    path.write_text(f"{new}\n{old}\n")
    assert "wrapped 2 data keys" in cli.run("rewrap").stdout
    path.write_text(new)
    async with vault.process() as third:
        assert await third.bodies(process.chat) == [text_of(1), text_of(2)]

    wrong = cli.run("shred", "--tenant", "acme", "--yes")
    assert wrong.returncode == 2 and "must be the tenant of this deployment" in wrong.stderr
    assert cli.run("shred", "--tenant", "default", answer="no\n").returncode == 1
    assert "deleted" not in cli.run("status").stdout
    path.write_text(new_line())  # shredding works without the right key file
    shredded = cli.run("shred", "--tenant", "default", answer="default\n")
    assert "deleted 2 data keys of default" in shredded.stdout, shredded.stderr
    assert cli.run("status").stdout.count("deleted") == 2
    async with vault.process() as fourth:
        assert {each.shredded for each in await fourth.read(process.chat)} == {True}


async def test_summary_memory_and_post_of_a_deleted_key_are_empty(vault: Vault) -> None:
    """Neither a read nor a re-encryption fails."""
    async with vault.process() as process:
        await fill(process)
    await vault.keys().shred(1)

    async with vault.process() as other:
        container = other.container
        dynamodb = container.dynamodb
        summary = await Summaries(dynamodb).find(process.chat)  # type: ignore[arg-type]
        assert summary is not None and summary.text == ""
        assert (await MemoryRows(dynamodb).get(UserId("alice"), ADA)).entries == ()
        assert (await SocialPosts(dynamodb).get_post(POST.author, POST.id)).content == ""
        done = await reencryption_of(other).run(lambda _: None)
        assert (done.items, done.refused) == (0, 0)


async def test_exported_items_of_a_tenant_stay_encrypted(vault: Vault) -> None:
    """An export contains no plain text. Restored items are readable with the same keys."""
    async with vault.process(tenant="acme") as process:
        await process.write(*TEN)
        own = get_tenant_settings(process.container.settings, "acme")
        async with open_dynamodb(own.warm) as client:
            table = f"{vault.warm.table_prefix}messages"
            stored = (await client.call("scan", {"TableName": table}))["Items"]
            assert len(stored) == 10 and all("B" in item["body"] for item in stored)
            for item in stored:
                key = {name: item[name] for name in ("chatid", "ts")}
                await client.call("delete_item", {"TableName": table, "Key": key})
            await put_items(client, table, stored)

        assert await process.bodies(process.chat) == [text_of(seq) for seq in TEN]


async def test_reencrypt_continues_after_a_kill(vault: Vault) -> None:
    """After `kill -9` during a run, the next run completes it."""
    async with vault.process(vault.off) as plain:
        for first in range(1, 1001, 100):
            await plain.write(*range(first, first + 100))
    cli = Cli(vault)

    killed = cli.run("reencrypt", CHAT_FAILPOINT="reencryption.before_checkpoint:kill:3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert 0 < len(await vault.find_word()) < 1000
    done = cli.run("reencrypt", "--max-write-units", "5000")

    assert done.returncode == 0, done.stderr
    assert await vault.find_word() == []
    async with vault.process() as process:
        page = await process.container.messages.list_after(plain.chat, 0, 200)
        assert [each.body for each in page] == [text_of(seq) for seq in range(1, 201)]
        item = await vault.item(plain.chat, OLD_TS + 1_000_000)
        assert "B" in item["body"]


async def test_process_without_encryption_settings_does_not_start(vault: Vault) -> None:
    """It would store plain text next to encrypted bodies."""
    async with vault.process() as process:
        await process.write(1)

    with pytest.raises(ConfigError, match=r"encryption\.provider"):
        async with vault.process(vault.off):
            pass
