"""Export of a tenant: all items, objects and Redis keys, with a manifest.

Resumable: `state.json` holds the list of files so far and the position of the export. After a
crash, at most one file of items or objects is written again; an unfinished export of the Redis keys
starts over. If the tenant is in use, its export is not a consistent snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import attrs
import msgspec

from chatserver.cold.tenant_objects import StoredObject
from chatserver.errors import Conflict, CorruptData, NotFound
from chatserver.operations.tenants.export_files import (
    FORMAT,
    ITEMS_BYTES,
    MANIFEST,
    STATE,
    ExportedFile,
    ExportedObject,
    Manifest,
    Target,
    compress_lines,
    decode,
    decompress_lines,
    read_manifest,
)
from chatserver.operations.tenants.tenant_block import format_time
from chatserver.operations.tenants.tenant_stores import OpenTenant, Report
from chatserver.task_groups import map_concurrently
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import TABLES, TableSchema

OBJECTS_AT_ONCE = 8
SECTION_REDIS, SECTION_OBJECTS = "redis", "objects"


class _State(msgspec.Struct):
    """Finished sections (tables, objects, Redis), position in the current one, and files so far."""

    tenant: str
    started: str
    done: list[str] = []
    next_key: Item | None = None
    next_object: str = ""
    counts: dict[str, int] = {}
    object_bytes: int = 0
    files: list[ExportedFile] = []


@attrs.define(eq=False, repr=False)
class TenantExport:
    _work: OpenTenant
    _target: Target
    _report: Report
    _state: _State = attrs.field(init=False)
    _lines: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)

    async def run(self, *, is_partial_allowed: bool = False) -> Manifest:
        """Export everything, or continue an export that was interrupted.

        `is_partial_allowed`: export even if some messages are only in Redis; the exported items
        then lack them.

        Raises:
            Conflict: the target has another export, or some messages are not in DynamoDB yet.
            Unavailable: a store does not respond; run it again.
        """
        unpersisted = 0
        if self._work.redis is not None:
            unpersisted = await self._work.redis.count_unpersisted()
        if unpersisted and not is_partial_allowed:
            raise Conflict(
                f"{unpersisted} commits and read marks may not be in DynamoDB yet; let `chatserver "
                "worker persist` finish, or use --allow-unpersisted"
            )
        await self._load()
        for table in TABLES:
            await self._run_section(table.name, self._export_table, table)
        if self._work.redis is not None:
            await self._run_section(SECTION_REDIS, self._export_redis)
        await self._run_section(SECTION_OBJECTS, self._export_objects)
        state = self._state
        manifest = Manifest(
            format=FORMAT,
            tenant=state.tenant,
            started=state.started,
            finished=format_time(self._work.clock.time()),
            is_blocked=bool((await self._work.schema.get_state()).blocked),
            unpersisted=unpersisted,
            counts=state.counts,
            object_bytes=state.object_bytes,
            files=state.files,
        )
        await self._target.write(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        failpoint("tenants.export.manifest")
        await self._target.delete(STATE)
        return manifest

    async def _load(self) -> None:
        try:
            self._state = decode(await self._target.read(STATE), _State, STATE)
        except NotFound:
            try:
                await self._target.read(MANIFEST)
            except NotFound:
                now = format_time(self._work.clock.time())
                self._state = _State(self._work.tenant, now)
                return
            raise Conflict("the target already has an export; choose another target") from None
        if self._state.tenant != self._work.tenant:
            raise Conflict(f"the target has an unfinished export of tenant {self._state.tenant}")

    async def _run_section(self, name: str, export: Callable[..., Any], *args: Any) -> None:
        if name in self._state.done:
            return
        await export(*args)
        if name not in self._state.done:
            self._state.done.append(name)
        self._state.counts.setdefault(name, 0)
        await self._save()

    async def _save(self) -> None:
        await self._target.write(STATE, msgspec.json.encode(self._state))

    async def _export_table(self, table: TableSchema) -> None:
        pages = self._work.items.iter_pages(table, start=self._state.next_key)
        async for page in pages:
            for item in page.items:
                self._add(msgspec.json.encode(item))
            if self._size >= ITEMS_BYTES or page.next is None:
                self._state.next_key = page.next
                if page.next is None:
                    self._state.done.append(table.name)  # saved by `_close_file`
                await self._close_file(table.name, f"dynamodb/{table.name}")
            self._report(f"dynamodb:{table.name}", page.scanned)

    async def _export_redis(self) -> None:
        """Write all Redis keys. Not resumable, because a SCAN cursor ends with its connection."""
        assert self._work.redis is not None
        self._state.files = [f for f in self._state.files if not f.name.startswith("redis/")]
        self._state.counts[SECTION_REDIS] = 0
        async for page in self._work.redis.iter_records():
            for record in page:
                self._add(msgspec.json.encode(record))
            if self._size >= ITEMS_BYTES:
                await self._close_file(SECTION_REDIS, "redis/keys")
            self._report(SECTION_REDIS, len(page))
        await self._close_file(SECTION_REDIS, "redis/keys")

    async def _export_objects(self) -> None:
        async for page in self._work.objects.iter_pages(after=self._state.next_object):
            for start in range(0, len(page), OBJECTS_AT_ONCE):
                batch = page[start : start + OBJECTS_AT_ONCE]
                for copied in await map_concurrently(
                    self._copy, batch, in_flight_max=OBJECTS_AT_ONCE, name="export-object"
                ):
                    if copied is not None:
                        self._add(msgspec.json.encode(copied))
                        self._state.object_bytes += copied.bytes
                self._report(SECTION_OBJECTS, len(batch))
            self._state.next_object = page[-1].key
            await self._close_file(SECTION_OBJECTS, "objects")

    async def _copy(self, stored: StoredObject) -> ExportedObject | None:
        try:
            head = await self._work.bucket.call("head_object", Key=stored.key)
            digest, size = await self._target.copy_in(self._work.bucket, stored.key)
        except NotFound:
            return None  # the object was deleted after it was listed
        return ExportedObject(
            stored.key, digest, size, head.get("ContentType", ""), head.get("Metadata", {})
        )

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    async def _close_file(self, section: str, stem: str) -> None:
        """Write the collected lines as a file, then save the progress."""
        if self._lines:
            number = sum(file.name.startswith(f"{stem}-") for file in self._state.files)
            name = f"{stem}-{number:06}.jsonl.zst"
            content = await asyncio.to_thread(compress_lines, self._lines)
            await self._target.write(name, content)
            failpoint(f"tenants.export.{section}")
            digest = hashlib.sha256(content).hexdigest()
            self._state.files.append(ExportedFile(name, digest, len(content), len(self._lines)))
            counts = self._state.counts
            counts[section] = counts.get(section, 0) + len(self._lines)
            self._lines, self._size = [], 0
        await self._save()


async def verify_export(target: Target, report: Report) -> list[str]:
    """Return the differences from the manifest; empty if the export is complete and unchanged.

    Raises:
        NotFound: the export is not finished.
    """
    manifest = await read_manifest(target)
    problems: list[str] = []
    counts: dict[str, int] = dict.fromkeys(manifest.counts, 0)
    for file in manifest.files:
        try:
            lines = await read_lines(target, file)
        except (NotFound, CorruptData) as exc:
            problems.append(exc.message)
            continue
        section = file.name.removeprefix("dynamodb/").split("/")[0].rpartition("-")[0]
        section = section if file.name.startswith(("dynamodb/", "objects-")) else SECTION_REDIS
        counts[section] = counts.get(section, 0) + len(lines)
        if section == SECTION_OBJECTS:
            problems += await _verify_objects(target, lines, file.name)
        report(file.name, len(lines))
    problems += [
        f"{name}: {counts[name]} instead of {count}"
        for name, count in manifest.counts.items()
        if counts[name] != count and not problems
    ]
    return problems


async def read_lines(target: Target, file: ExportedFile) -> list[bytes]:
    """Return the lines of a file that the manifest lists. Raises NotFound, CorruptData."""
    content = await target.read(file.name)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise CorruptData(f"{file.name}: its SHA-256 differs from the manifest")
    lines = await asyncio.to_thread(decompress_lines, content, file.name)
    if len(lines) != file.lines:
        raise CorruptData(f"{file.name}: {len(lines)} lines instead of {file.lines}")
    return lines


async def _verify_objects(target: Target, lines: list[bytes], name: str) -> list[str]:
    problems = []
    for line in lines:
        exported: ExportedObject = decode(line, ExportedObject, name)
        digest = hashlib.sha256()
        try:
            async with contextlib.aclosing(target.iter_object(exported.key)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
        except NotFound as exc:
            problems.append(exc.message)
            continue
        if digest.hexdigest() != exported.sha256:
            problems.append(f"objects/{exported.key}: its SHA-256 differs from the index")
    return problems
