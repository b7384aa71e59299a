"""Rebuild, status and query on the command line; erasure and removal of a tenant."""

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
    Library,
    NewPerson,
    make_group,
    texts,
    until_found,
)
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.features.search.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def run(library: Library, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `chatserver search` as a process of its own."""
    stack = library.vault.stack
    return await asyncio.to_thread(
        subprocess.run,
        [*stack.cli, "search", *args],
        env={**os.environ, **stack.environment()},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


async def test_rebuild_replaces_the_index_while_new_messages_are_found(
    library: Library, new_person: NewPerson
) -> None:
    """Extra documents are removed and missing ones added, from DynamoDB and S3."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await make_group(ann, ben.user)
    for n in range(5):
        await ann.say(chat, f"walnut {n}")
    await until_found(ben, "walnut", 5)
    archived = await library.archive()
    library.spoil(chat)
    assert len(await texts(ben, "walnut")) < 5

    rebuilding = asyncio.create_task(run(library, "rebuild"))
    await ann.say(chat, "walnut live")
    done = await rebuilding
    status = await run(library, "status", "--format", "json")
    queried = await run(library, "query", "walnut", "--as", ben.user)

    assert archived > 0
    assert done.returncode == 0, done.stderr
    assert "rebuilt: " in done.stdout
    await until_found(ben, "walnut", 6)
    found = json.loads(status.stdout)
    assert found["documents"] >= 6
    assert found["bytes"] > 0
    assert found["rebuild"] is None
    assert queried.stdout.count("walnut") >= 5


async def test_query_of_the_command_line_reports_errors(library: Library) -> None:
    """A wrong query ends with 2 and its reason."""
    found = await run(library, "query", "has:x", "--as", "ann")

    assert found.returncode == 2, found.stderr
    assert "has:file" in found.stderr


async def test_erased_user_leaves_no_byte_in_the_index(
    library: Library, new_person: NewPerson
) -> None:
    """Neither texts nor the id when the receipt says so; other users keep their messages."""
    zoe, ben = await new_person("zoe"), await new_person("ben")
    mark = f"secret{secrets.token_hex(6)}"
    chat = await zoe.open_direct(ben.user)
    for n in range(30):
        await zoe.say(chat, f"{mark} number {n}")
    await ben.say(chat, "hazelnut stays")
    await until_found(ben, mark, 30)
    assert library.has_bytes(mark)
    assert library.has_bytes(zoe.user)
    worker = library.vault.start_worker("erasures")

    receipt = (await zoe.ask("DELETE", "/v1/me", 202, {}))["receipt"]
    done = await wait_for_erasure(ben.client, receipt)

    assert "partitions of the search index compacted" in str(done["steps"])

    assert library.has_bytes(mark) == []
    assert library.has_bytes(zoe.user) == []
    await until_found(ben, "hazelnut")
    worker.kill()


async def test_index_of_a_tenant_is_deleted(library: Library, new_person: NewPerson) -> None:
    """No file is left of an embedded index. One in the bucket is among the tenant's objects."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    await ann.say(chat, "almond")
    await until_found(ben, "almond")
    library.stop_indexer()

    is_embedded = library.engine == "sqlite"
    names = sorted(name for name, _ in library.index_files()) if is_embedded else []

    async with open_tenant_index(library.settings, "") as index:
        left = await index.find_left(10)
        assert [Path(each).name for each in left.found] == names
        assert sum([count async for count in index.delete()]) == len(names)
        assert await index.find_left(10) == ([], 0)

    assert (list(library.index_files()) == []) == is_embedded
    library.start_indexer()
    await until_found(ben, "almond")
    await eventually(lambda: list(library.index_files()) != [])
