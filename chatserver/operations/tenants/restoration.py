"""Restore of a tenant from an export: items and objects. Redis is filled from DynamoDB later.

The tenant is blocked during the restore. Resumable: the tenant record in DynamoDB holds the number
of restored files, and a repeated write puts the same content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any, Final

import attrs

from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, CorruptData
from chatserver.operations.tenants.export import OBJECTS_AT_ONCE, read_lines
from chatserver.operations.tenants.export_files import (
    ExportedFile,
    ExportedObject,
    Manifest,
    Target,
    decode,
    read_manifest,
)
from chatserver.operations.tenants.tenant_block import block, unblock, wait_for_processes
from chatserver.operations.tenants.tenant_stores import OpenTenant, Report
from chatserver.task_groups import map_concurrently
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.active_version import PROCESS_PREFIX, SCHEMA_KEY
from chatserver.warm.schema.directory_attributes import SchemaField
from chatserver.warm.schema.tables import TABLES
from chatserver.warm.tenant_states import TenantState

ITEMS_AT_ONCE: Final = 400
LEFT_MAX: Final = 20
# Data that `tables apply` creates; a tenant that has nothing else counts as empty.
_OF_NEW_TENANT: Final = ("s3:rules", f"dynamodb:directory: {SCHEMA_KEY} / ")


@attrs.define(eq=False, repr=False)
class Restoration:
    _work: OpenTenant
    _target: Target
    _report: Report
    _reason: str = attrs.field(default="", init=False)

    async def run(self) -> Manifest:
        """Restore everything, or continue a restore; then unblock the tenant.

        Raises:
            Conflict: the tenant has data, or the export is from another tenant.
            CorruptData: a file differs from the manifest.
            Unavailable: a store does not respond; run it again.
        """
        manifest = await read_manifest(self._target)
        if manifest.tenant != self._work.tenant:
            raise Conflict(f"the export is from tenant {manifest.tenant}, not {self._work.tenant}")
        record = await self._begin()
        progress: dict[str, Any] = json.loads(record.progress)
        self._reason = await block(self._work, "it is being restored")
        await wait_for_processes(self._work, lambda text: self._report(text, 0))
        files = [file for file in manifest.files if not file.name.startswith("redis/")]
        for number, file in enumerate(files):
            if number < progress.get("files", 0):
                continue
            await self._restore_file(file)
            progress["files"] = number + 1
            await self._work.records.put(record._replace(progress=json.dumps(progress)))
            failpoint("tenants.restore.file")
        await unblock(self._work)
        await self._work.record("active", record.job, record.receipt)
        return manifest

    async def _begin(self) -> TenantState:
        existing = await self._work.records.find(self._work.tenant)
        if existing is not None and existing.state == "restoring":
            return existing
        found = [
            f"{store.name}: {name}"
            for store in self._work.list_stores()
            for name in (await store.find_remaining(LEFT_MAX)).found
        ]
        if own := [name for name in found if not name.startswith(_OF_NEW_TENANT)]:
            raise Conflict(
                f"tenant {self._work.tenant} has data ({'; '.join(own[:3])}); restore "
                "into an empty tenant, or delete this one first"
            )
        receipt = "" if existing is None else existing.receipt
        return await self._work.record("restoring", new_id(), receipt)

    async def _restore_file(self, file: ExportedFile) -> None:
        lines = await read_lines(self._target, file)
        for table in TABLES:
            if file.name.startswith(f"dynamodb/{table.name}-"):
                decoded = (decode(line, Item, file.name) for line in lines)
                items = [self._add_block(item) for item in decoded if _is_restored(item)]
                for start in range(0, len(items), ITEMS_AT_ONCE):
                    batch = items[start : start + ITEMS_AT_ONCE]
                    await self._work.items.put(table, batch)
                    self._report(f"dynamodb:{table.name}", len(batch))
                return
        objects = [decode(line, ExportedObject, file.name) for line in lines]
        for start in range(0, len(objects), OBJECTS_AT_ONCE):
            exported = objects[start : start + OBJECTS_AT_ONCE]
            await map_concurrently(
                self._put_object, exported, in_flight_max=OBJECTS_AT_ONCE, name="restore-object"
            )
            self._report("s3", len(exported))

    def _add_block(self, item: Item) -> Item:
        """Return the item to put: the schema version item with the block, other items unchanged."""
        key = {SchemaField.PK: {"S": SCHEMA_KEY}, SchemaField.SK: {"S": SCHEMA_KEY}}
        if any(item.get(name) != value for name, value in key.items()):
            return item
        return {**item, SchemaField.BLOCKED: {"S": self._reason}}

    async def _put_object(self, exported: ExportedObject) -> None:
        async with contextlib.aclosing(self._target.iter_object(exported.key)) as pieces:
            content = b"".join([piece async for piece in pieces])
        if hashlib.sha256(content).hexdigest() != exported.sha256:
            raise CorruptData(f"objects/{exported.key}: its SHA-256 differs from the index")
        await self._work.bucket.call(
            "put_object",
            Key=exported.key,
            Body=content,
            Metadata=exported.metadata,
            **({"ContentType": exported.type} if exported.type else {}),
        )


def _is_restored(item: Item) -> bool:
    """Return whether to restore an item; False for process heartbeats and the migration lock."""
    partition = item.get(SchemaField.PK, {}).get("S")
    sort = item.get(SchemaField.SK, {}).get("S", "")
    return not (partition == SCHEMA_KEY and sort.startswith((PROCESS_PREFIX, "lock")))
