"""Tenant blocks: no process of a blocked tenant may use its Redis, tables and objects.

A block takes effect in three steps:

1. DynamoDB: the tenant's schema version item is marked as blocked. New processes do not start, and
   running processes stop at their next check.
2. Redis: connections are closed and new connections are refused, so the Redis calls of gateways,
   API processes and workers fail. These processes close all sessions (close code 3504), return 403
   to requests, and stop calling DynamoDB and S3.
3. `wait_for_processes` waits until all processes have removed their heartbeat items or missed three
   heartbeats. Calls that are in progress then end within `in_flight_s_max`.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Final

from chatserver.config import Settings
from chatserver.errors import Conflict
from chatserver.operations.tenants.tenant_stores import OpenTenant
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.schema.active_version import HEARTBEATS_MISSED_MAX, SCHEMA_CHECK_S

POLL_S: Final = 0.5
CALL_TIMEOUTS: Final = 1.0  # A call with its retries takes at most this many call timeouts.
PROCESSES_WAIT_S: Final = SCHEMA_CHECK_S * (HEARTBEATS_MISSED_MAX + 1)


def in_flight_s_max(settings: Settings) -> float:
    """Return the maximum duration of a call to DynamoDB or S3, in seconds."""
    return CALL_TIMEOUTS * max(settings.warm.call_timeout_s, settings.cold.call_timeout_s)


def format_time(time_s: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    moment = datetime.datetime.fromtimestamp(int(time_s), datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")


async def block(work: OpenTenant, detail: str) -> str:
    """Block a tenant; return the reason that clients receive. Idempotent."""
    reason = f"tenant {work.tenant} is blocked: {detail}"
    await work.schema.set_blocked(reason)
    failpoint("tenants.block.schema")
    if work.redis is not None:
        await work.redis.block(work.tenant, reason)
    failpoint("tenants.block.redis")
    return reason


async def unblock(work: OpenTenant) -> None:
    """Unblock a tenant. Idempotent.

    Redis is unblocked last: when processes reconnect to it, DynamoDB is unblocked already.
    """
    await work.schema.set_blocked("")
    if work.redis is not None:
        await work.redis.unblock()


async def wait_for_processes(work: OpenTenant, report: Callable[[str], None]) -> None:
    """Wait until no process of the blocked tenant uses the stores.

    Raises:
        Conflict: some processes still run after `PROCESSES_WAIT_S`; the message names them.
    """
    deadline = work.clock.monotonic() + PROCESSES_WAIT_S
    while True:
        running = await work.schema.list_processes(work.clock.time())
        if not running:
            return
        names = ", ".join(process.name for process in running[:5])
        if work.clock.monotonic() >= deadline:
            raise Conflict(
                f"{len(running)} processes of tenant {work.tenant} do not stop: {names}; stop "
                "them and run the command again"
            )
        report(f"waiting for {len(running)} processes to stop: {names}")
        await asyncio.sleep(POLL_S)
