"""Export and restore of a tenant: complete, verified, and resumed after a crash."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chatserver.config import Settings
from chatserver.errors import Conflict, CorruptData, NotFound
from chatserver.operations.tenants import export as exports
from chatserver.operations.tenants import restoration
from chatserver.operations.tenants.deletion import Deletion
from chatserver.operations.tenants.export import TenantExport, verify_export
from chatserver.operations.tenants.export_files import Target, open_target
from chatserver.operations.tenants.restoration import Restoration
from chatserver.operations.tenants.tenant_stores import OpenTenant
from tests.integration.operations.tenants.support import (
    QUICK,
    fill,
    ignore,
    opened,
    read_items,
    read_objects,
)
from tests.support.servers.processes import redis_client

pytestmark = pytest.mark.constants(
    # Several files for each section.
    {
        "chatserver.operations.tenants.export_files.ITEMS_BYTES": 1000,
        "chatserver.warm.tenant_item_scans.SCAN_ITEMS_MAX": 7,
        **QUICK,
    }
)


@pytest_asyncio.fixture
async def work(settings: Settings) -> AsyncIterator[OpenTenant]:
    async with opened(settings, "acme") as made:
        yield made


@pytest_asyncio.fixture
async def target(settings: Settings, tmp_path: Path) -> AsyncIterator[Target]:
    async with open_target(str(tmp_path), settings.cold) as made:
        yield made


class Crash(Exception):
    """Stands for a crash at a failpoint."""


def by_key(items: list[Any]) -> list[str]:
    """Return items in a comparable order."""
    return sorted(json.dumps(item, sort_keys=True) for item in items)


async def run(work: OpenTenant, target: Target) -> Any:
    return await TenantExport(work, target, ignore).run()


@pytest.mark.parametrize("is_bucket", [False, True])
async def test_export_restores_all_data_after_a_deletion(
    settings: Settings, work: OpenTenant, tmp_path: Path, is_bucket: bool
) -> None:
    """Items, objects and their types are equal, and the tenant is not blocked."""
    place = f"s3://{settings.cold.bucket}/backups/acme" if is_bucket else str(tmp_path)
    async with open_target(place, settings.cold) as target:
        await fill(work, "mark-a")
        with redis_client(settings.redis.url) as redis:
            redis.hset("{p0}:box:zoe", mapping={"a": b"\xff\xfe", "b": "text"})
        items, objects = await read_items(work), await read_objects(work)

        manifest = await run(work, target)
        assert await verify_export(target, ignore) == []
        await Deletion(work, ignore).run()
        await Restoration(work, target, ignore).run()

        assert by_key(await read_items(work)) == by_key(items)
        assert await read_objects(work) == objects
        head = await work.bucket.call("head_object", Key="attachments/c/1")
        assert (head["ContentType"], head["Metadata"]) == ("text/plain", {"name": "x"})
        assert manifest.counts == {
            "messages": 30, "chat_session": 0, "social": 1, "directory": 2, "redis": 1,
            "objects": 5,
        }  # fmt: skip
        assert len(manifest.files) > 5
        assert (await work.schema.get_state()).blocked == ""
        record = await work.records.find("acme")
        assert record is not None
        assert (record.state, json.loads(record.receipt)["left"]) == ("active", 0)


async def test_export_killed_after_each_file_is_complete_when_repeated(
    work: OpenTenant, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat continues after the last file, so that nothing is missing or duplicated."""
    done: list[str] = []

    def crash_once(name: str) -> None:
        """Crash at every other failpoint, so that each repeat makes progress."""
        done.append(name)
        if len(done) % 2:
            raise Crash(name)

    monkeypatch.setattr(exports, "failpoint", crash_once)
    await fill(work, "mark-a", messages=40, objects=30)
    attempts = 0
    while True:
        attempts += 1
        try:
            manifest = await run(work, target)
        except Crash:
            continue
        break

    assert attempts > 3
    assert await verify_export(target, ignore) == []
    assert (manifest.counts["messages"], manifest.counts["objects"]) == (40, 30)
    assert not (tmp_path / "state.json").exists()
    with pytest.raises(Conflict, match="already has an export"):
        await run(work, target)


async def test_restore_killed_after_each_file_is_complete_when_repeated(
    work: OpenTenant, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant stays blocked until everything is restored. Other commands refuse it meanwhile."""

    def crash(name: str) -> None:
        raise Crash(name)

    await fill(work, "mark-a", messages=30, objects=3)
    items, objects = await read_items(work), await read_objects(work)
    await run(work, target)
    await Deletion(work, ignore).run()
    with monkeypatch.context() as patch:
        patch.setattr(restoration, "failpoint", crash)
        attempts = 0
        while True:
            attempts += 1
            try:
                await Restoration(work, target, ignore).run()
            except Crash:
                state = await work.schema.get_state()
                assert state.blocked == "tenant acme is blocked: it is being restored"
                continue
            break

    assert attempts > 5
    assert by_key(await read_items(work)) == by_key(items)
    assert await read_objects(work) == objects
    assert (await work.schema.get_state()).blocked == ""


async def test_verify_names_changed_and_missing_files(
    work: OpenTenant, target: Target, tmp_path: Path
) -> None:
    """A restore from such an export is refused."""
    await fill(work, "mark-a")
    with pytest.raises(NotFound, match="not finished"):
        await verify_export(target, ignore)
    await run(work, target)
    (tmp_path / "objects/attachments/c/1").write_text("changed")
    (tmp_path / "objects/attachments/c/2").unlink()
    name = "dynamodb/social-000000.jsonl.zst"
    (tmp_path / name).write_bytes(b"changed")

    problems = await verify_export(target, ignore)

    assert problems == [
        f"{name}: its SHA-256 differs from the manifest",
        "objects/attachments/c/1: its SHA-256 differs from the index",
        "export: objects/attachments/c/2 is missing",
    ]
    await Deletion(work, ignore).run()
    with pytest.raises(CorruptData, match="SHA-256"):
        await Restoration(work, target, ignore).run()


async def test_restore_into_a_tenant_with_data_is_refused(
    settings: Settings, work: OpenTenant, target: Target
) -> None:
    """Otherwise old and new items would be mixed."""
    await fill(work, "mark-a")
    await run(work, target)
    async with opened(settings, "globex", has_redis=False) as other:
        with pytest.raises(Conflict, match="tenant acme has data"):
            await Restoration(work, target, ignore).run()
        with pytest.raises(Conflict, match="the export is from tenant acme, not globex"):
            await Restoration(other, target, ignore).run()


async def test_export_with_messages_that_are_only_in_redis_is_refused(
    settings: Settings, work: OpenTenant, target: Target
) -> None:
    """The export would lack acked messages, unless a partial export is allowed."""
    with redis_client(settings.redis.url) as redis:
        ids = [redis.xadd("{p0}:backlog", {"g": "gw", f"{n}:1": "\n"}) for n in range(1, 5)]
        redis.hset("{p0}:checkpoint", "id", ids[2])

    with pytest.raises(Conflict, match="4 commits and read marks may not be in DynamoDB yet"):
        await run(work, target)
    manifest = await TenantExport(work, target, ignore).run(is_partial_allowed=True)
    with redis_client(settings.redis.url) as redis:
        redis.hset("{p0}:checkpoint", "id", ids[3])

    assert manifest.unpersisted == 4
    assert await work.redis.count_unpersisted() == 0
