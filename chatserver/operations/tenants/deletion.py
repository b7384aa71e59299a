"""Deletion of a tenant: block, delete every store, check, receipt.

::

    record ─► block ─► wait for processes ─► delete each store ─► wait for calls ─► check ─► receipt
                                                                                      │
                                                           found something ◄──────────┘ delete again

After a crash, the same command continues the deletion: the tenant record in DynamoDB holds the
progress, and every step is idempotent. After the deletion, the record with the receipt and the
block (one item, and one hash per Redis partition) remain. Because of the block, a process that
starts later writes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any, Final

import attrs

from chatserver.domain.ids import new_id
from chatserver.errors import Unavailable
from chatserver.operations.tenants.tenant_block import (
    block,
    format_time,
    in_flight_s_max,
    wait_for_processes,
)
from chatserver.operations.tenants.tenant_stores import OpenTenant, Report
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.tenant_states import TenantState

CHECKS_MAX: Final = 5  # Data from late writes is deleted at most this many times.
LEFT_SHOWN_MAX: Final = 10


@attrs.define(eq=False, repr=False)
class Deletion:
    _work: OpenTenant
    _report: Report
    _record: TenantState = attrs.field(init=False)
    _progress: dict[str, Any] = attrs.field(factory=dict, init=False)

    async def run(self, *, is_again: bool = False) -> dict[str, Any]:
        """Delete the tenant, or continue a deletion; return the receipt.

        A finished deletion is repeated only if `is_again`.

        Raises:
            Conflict: processes of the tenant do not stop.
            Unavailable: a store does not respond, or processes still write data. Run it again.
        """
        record = await self._work.records.find(self._work.tenant)
        if record is not None and record.state == "deleted" and not is_again:
            receipt: dict[str, Any] = json.loads(record.receipt)
            return receipt
        await self._begin(record)
        started = self._progress["started"]
        await block(self._work, f"its deletion was started at {format_time(started)}")
        await wait_for_processes(self._work, lambda text: self._report(text, 0))
        failpoint("tenants.delete.waited")
        drained_at = self._work.clock.monotonic() + in_flight_s_max(self._work.settings)
        for store in self._work.list_stores():
            if store.name not in self._progress["done"]:
                await self._delete(store.name)
                self._progress["done"].append(store.name)
                await self._save()
        failpoint("tenants.delete.settling")
        await asyncio.sleep(max(0.0, drained_at - self._work.clock.monotonic()))
        checked = await self._check()
        return await self._finish(checked)

    async def _begin(self, record: TenantState | None) -> None:
        now = self._work.clock.time()
        if record is not None and record.state == "deleting":
            self._record, self._progress = record, json.loads(record.progress)
            return
        self._progress = {"started": now, "done": [], "deleted": {}}
        progress = json.dumps(self._progress)
        self._record = await self._work.record("deleting", new_id(), progress=progress)
        failpoint("tenants.delete.recorded")

    async def _save(self) -> None:
        self._record = self._record._replace(progress=json.dumps(self._progress))
        await self._work.records.put(self._record)

    async def _delete(self, name: str) -> int:
        """Delete a store; return the number of deleted items, objects or keys."""
        (store,) = [candidate for candidate in self._work.list_stores() if candidate.name == name]
        total = 0
        counts: dict[str, int] = self._progress["deleted"]
        async for deleted in store.delete():
            total += deleted
            counts[name] = counts.get(name, 0) + deleted
            self._report(name, deleted)
        if name == "dynamodb:directory":
            # Recreate the tenant's schema version item with only the block: no process can start.
            started = format_time(self._progress["started"])
            reason = f"tenant {self._work.tenant} is blocked: its deletion was started at {started}"
            await self._work.items.put_block(reason)
        failpoint(f"tenants.delete.done.{name.rpartition(':')[2]}")
        return total

    async def _check(self) -> dict[str, int]:
        """Delete data from late writes until none is left; return the items checked per store."""
        for _ in range(CHECKS_MAX):
            checked: dict[str, int] = {}
            found: list[str] = []
            for store in self._work.list_stores():
                remaining = await store.find_remaining(LEFT_SHOWN_MAX)
                checked[store.name] = remaining.checked
                if remaining.found:
                    found += [f"{store.name}: {name}" for name in remaining.found]
                    await self._delete(store.name)
            failpoint("tenants.delete.checked")
            if not found:
                return checked
        shown = "; ".join(found[:LEFT_SHOWN_MAX])
        raise Unavailable(
            f"tenant {self._work.tenant}: late writes were found ({shown}); "
            "stop all processes of the tenant and run the command again"
        )

    async def _finish(self, checked: dict[str, int]) -> dict[str, Any]:
        receipt = make_receipt(
            {
                "tenant": self._work.tenant,
                "job": self._record.job,
                "started": format_time(self._progress["started"]),
                "finished": format_time(self._work.clock.time()),
                "deleted": self._progress["deleted"],
                "checked": checked,
                "left": 0,
                "redis": "deleted" if self._work.redis is not None else "not checked",
            }
        )
        done = f"it was deleted at {receipt['finished']}"
        reason = f"tenant {self._work.tenant} is blocked: {done}"
        await self._work.items.put_block(reason)
        if self._work.redis is not None:
            await self._work.redis.block(self._work.tenant, reason)
        failpoint("tenants.delete.finishing")
        await self._work.record("deleted", self._record.job, json.dumps(receipt))
        failpoint("tenants.delete.finished")
        return receipt


def make_receipt(content: dict[str, Any]) -> dict[str, Any]:
    """Return the receipt with the SHA-256 of its canonical JSON."""
    return {**content, "sha256": compute_receipt_digest(content)}


def compute_receipt_digest(receipt: dict[str, Any]) -> str:
    """Return the SHA-256 of a receipt's JSON: sorted keys, no spaces, without `sha256`."""
    content = {name: value for name, value in receipt.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
