"""Rebuild, status and query on the command line; erasure of a user and deletion of a tenant."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from chatserver.features.search.tenant_index import open_tenant_index
from tests.integration.features.privacy.support import wait_for_erasure
from tests.integration.features.search.support import (
    NewPerson,
    SearchStack,
    make_group,
    search_texts,
    wait_for_results,
)
from tests.support.fork_server import CLI
from tests.support.servers.processes import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def run(search_stack: SearchStack, *args: str) -> subprocess.CompletedProcess[str]:
    stack = search_stack.vault.stack
    return await asyncio.to_thread(
        subprocess.run,
        [*CLI, "search", *args],
        env={**os.environ, **stack.environment()},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


async def test_rebuild_restores_missing_documents_during_new_messages(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """Missing documents are added from DynamoDB and S3, and new messages are found."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await make_group(ann, ben.user)
    for n in range(5):
        await ann.send(chat, f"walnut {n}")
    await wait_for_results(ben, "walnut", 5)
    archived = await search_stack.archive()
    search_stack.delete_documents(chat)
    assert len(await search_texts(ben, "walnut")) < 5

    rebuilding = asyncio.create_task(run(search_stack, "rebuild"))
    await ann.send(chat, "walnut live")
    done = await rebuilding
    status = await run(search_stack, "status", "--format", "json")
    queried = await run(search_stack, "query", "walnut", "--as", ben.user)

    assert archived > 0
    assert done.returncode == 0, done.stderr
    assert "rebuilt: " in done.stdout
    await wait_for_results(ben, "walnut", 6)
    found = json.loads(status.stdout)
    assert found["documents"] >= 6
    assert found["bytes"] > 0
    assert found["rebuild"] is None
    assert queried.stdout.count("walnut") >= 5


async def test_invalid_query_on_the_command_line_exits_with_2(search_stack: SearchStack) -> None:
    """The reason is printed."""
    found = await run(search_stack, "query", "has:x", "--as", "ann")

    assert found.returncode == 2, found.stderr
    assert "has:file" in found.stderr


async def test_erased_user_is_removed_from_the_index_files(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """Once the receipt is complete, the index has neither the texts nor the id of this user."""
    zoe, ben = await new_person("zoe"), await new_person("ben")
    mark = f"secret{secrets.token_hex(6)}"
    chat = await zoe.open_direct(ben.user)
    for n in range(30):
        await zoe.send(chat, f"{mark} number {n}")
    await ben.send(chat, "hazelnut stays")
    await wait_for_results(ben, mark, 30)
    assert search_stack.find_files_with(mark)
    assert search_stack.find_files_with(zoe.user)
    worker = search_stack.vault.start_worker("erasures")

    receipt = (await zoe.request("DELETE", "/v1/me", 202, {}))["receipt"]
    done = await wait_for_erasure(ben.client, receipt)

    assert "partitions of the search index compacted" in str(done["steps"])

    assert search_stack.find_files_with(mark) == []
    assert search_stack.find_files_with(zoe.user) == []
    await wait_for_results(ben, "hazelnut")
    worker.kill()


async def test_search_index_of_a_tenant_is_deleted(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The files of an embedded index are deleted; an index in S3 is deleted with the objects."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    await ann.send(chat, "almond")
    await wait_for_results(ben, "almond")
    search_stack.stop_indexer()

    is_embedded = search_stack.engine == "sqlite"
    names = sorted(name for name, _ in search_stack.index_files()) if is_embedded else []

    async with open_tenant_index(search_stack.settings, "") as index:
        remaining = await index.find_remaining(10)
        assert [Path(each).name for each in remaining.found] == names
        assert sum([count async for count in index.delete()]) == len(names)
        assert await index.find_remaining(10) == ([], 0)

    assert (list(search_stack.index_files()) == []) == is_embedded
    search_stack.start_indexer()
    await wait_for_results(ben, "almond")
    await eventually(lambda: list(search_stack.index_files()) != [])
