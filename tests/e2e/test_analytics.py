"""Analytics: users chat over HTTP; an operator exports and queries the messages."""

from __future__ import annotations

import asyncio
import io
import json
import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest_asyncio
import zstandard

from tests.integration.features.privacy.support import (
    PASSWORD,
    TIMEOUT_S,
    Person,
    Vault,
    open_vault,
    wait_for_erasure,
)
from tests.support.fork_server import CLI
from tests.support.servers.processes import eventually

CLI_S = 200
ARCHIVE = {
    "CHAT_ARCHIVE_RETENTION_S": "1",
    "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.5",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN": "1",
    "CHAT_ARCHIVE_WAIT_S": "0",
}


@pytest_asyncio.fixture
async def vault(tmp_path: Path) -> AsyncIterator[Vault]:
    """A stack that exports message texts."""
    async with open_vault(tmp_path, CHAT_ANALYTICS_EXPORT="texts", **ARCHIVE) as made:
        yield made


async def run(vault: Vault, *args: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [*CLI, "analytics", *args],
        env={**os.environ, **vault.stack.environment()}, capture_output=True, text=True,
        check=False, timeout=CLI_S, cwd=Path(__file__).parents[2],
    )  # fmt: skip


async def query(vault: Vault, sql: str) -> list[dict[str, object]]:
    done = await run(vault, "query", "--format", "json", sql)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_in_bucket(vault: Vault, mark: str) -> list[str]:
    """Return the objects that contain a mark, in their bytes or decoded."""
    found = []
    for key, data in vault.iter_objects():
        contents = [data]
        if key.endswith(".parquet"):
            contents.append(repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode())
        if key.endswith(".zst"):
            contents.append(zstandard.ZstdDecompressor().decompress(data))
        found += [key for content in contents if mark.encode() in content]
    return found


async def test_messages_are_exported_queried_and_erased(vault: Vault) -> None:
    """Messages are counted; texts and id of an erased user are removed from the files."""
    mark = f"canary{secrets.token_hex(8)}"
    not_exported = await run(vault, "query", "SELECT 1")
    async with httpx.AsyncClient(base_url=vault.api.endpoint, timeout=TIMEOUT_S) as client:
        zoe, bob = (Person(client, f"{name}-{secrets.token_hex(4)}") for name in ("zoe", "bob"))
        await zoe.register()
        await bob.register()
        direct = await zoe.open_direct(bob.user)
        for number in range(3):
            await zoe.send(direct, f"ask {number} {mark}")
            await bob.send(direct, f"answer {number}")
        edited = await zoe.send(direct, f"first {mark}")
        group = (await zoe.request("POST", "/v1/chats", 201, {"members": [bob.user]}))["chat"]
        await zoe.send(group, f"to all {mark}")
        await _wait_until_stored(vault, direct, 7)
        await _wait_until_stored(vault, group, 1)

        # The first export reads DynamoDB. Then the same messages are archived, and one is edited.
        first = await run(vault, "export", "--warm")
        by_kind = await query(
            vault,
            "SELECT chat_kind, count(*) AS n FROM messages GROUP BY chat_kind ORDER BY chat_kind",
        )
        archiver = vault.start_worker("archive")
        await eventually(lambda: _is_archived(vault, mark, direct))
        await zoe.request(
            "PATCH", f"/v1/chats/{direct}/messages/{edited}", 200, {"body": f"second {mark}"}
        )
        await eventually(lambda: _is_archived(vault, f"second {mark}", direct))
        second = await run(vault, "export")
        texts = await query(
            vault,
            f"SELECT body, receiver FROM messages WHERE chat = '{direct}' AND sender = "
            f"'{zoe.user}' ORDER BY seq",
        )
        before = set(find_in_bucket(vault, mark))

        worker = vault.start_worker("erasures")
        receipt = await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD})
        done = await wait_for_erasure(client, receipt["receipt"])
        worker.kill()
        archiver.kill()
        kept = await query(
            vault, "SELECT body, sender, receiver FROM messages WHERE NOT is_deleted ORDER BY ts"
        )
        deleted = await query(vault, "SELECT count(*) AS n FROM messages WHERE is_deleted")

    assert not_exported.returncode == 1
    assert "nothing has been exported yet; run `chatserver analytics export`" in not_exported.stderr
    assert first.returncode == 0, first.stderr
    assert by_kind == [{"chat_kind": "direct", "n": 7}, {"chat_kind": "group", "n": 1}]
    assert second.returncode == 0, second.stderr
    assert [row["body"] for row in texts] == [
        *(f"ask {number} {mark}" for number in range(3)), f"second {mark}",
    ]  # fmt: skip
    assert {row["receiver"] for row in texts} == {bob.user}
    assert any(key.endswith(".parquet") for key in before)
    assert "analytics files rewritten" in {line["what"] for line in done["steps"]}
    assert find_in_bucket(vault, mark) == []
    assert [key for key in find_in_bucket(vault, zoe.user) if key.endswith(".parquet")] == []
    assert kept == [
        {"body": f"answer {number}", "sender": bob.user, "receiver": None} for number in range(3)
    ]
    assert deleted == [{"n": 5}]


async def _wait_until_stored(vault: Vault, chat: str, count: int) -> None:
    async def is_stored() -> bool:
        return len(await vault.stack.read_items(chat)) >= count

    await eventually(is_stored)


async def _is_archived(vault: Vault, text: str, chat: str) -> bool:
    keys = await asyncio.to_thread(find_in_bucket, vault, text)
    return any(key.startswith(f"archive/v1/{chat}/") for key in keys)


async def test_query_prints_table_and_csv_and_reports_truncation(vault: Vault) -> None:
    """A truncated result is reported on standard error; an invalid statement is an error."""
    async with httpx.AsyncClient(base_url=vault.api.endpoint, timeout=TIMEOUT_S) as client:
        dan, eve = (Person(client, f"{name}-{secrets.token_hex(4)}") for name in ("dan", "eve"))
        await dan.register()
        await eve.register()
        chat = await dan.open_direct(eve.user)
        for number in range(5):
            await dan.send(chat, f"number {number}")
        await _wait_until_stored(vault, chat, 5)
    await run(vault, "export", "--warm")
    sql = f"SELECT seq, kind, body, ts FROM messages WHERE chat = '{chat}' ORDER BY ts"

    table = await run(vault, "query", "--max-rows", "2", sql)
    csv = await run(vault, "query", "--format", "csv", sql)
    wrong = await run(vault, "query", "DELETE FROM messages")
    definition = await run(vault, "table")

    lines = table.stdout.splitlines()
    assert lines[0].split() == ["seq", "kind", "body", "ts"]
    assert len(lines) == 4
    assert "only the first 2 rows are shown" in table.stderr
    assert csv.stdout.splitlines()[0] == "seq,kind,body,ts"
    assert len(csv.stdout.splitlines()) == 6
    assert wrong.returncode == 2
    assert "must be exactly one SELECT or EXPLAIN statement" in wrong.stderr
    assert f"s3://{vault.cold.bucket}/analytics/v1/" in definition.stdout
