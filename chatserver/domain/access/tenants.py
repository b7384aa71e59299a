"""Tenants: names, data stores, and blocking a tenant's access to DynamoDB and S3."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

from chatserver.errors import BadRequest

TENANT_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9-]{0,31}"
# First components of S3 object keys in a deployment without tenants.
RESERVED_TENANTS: Final = frozenset(
    {"analytics", "archive", "attachments", "bodies", "exports", "search", "thumbs", "uploads"}
)


def format_tenant(tenant: str) -> str:
    """Return the name of a tenant for error messages; `tenant` is empty without tenants."""
    return f"tenant {tenant}" if tenant else "the deployment without a tenant"


def parse_tenant(text: str) -> str:
    """Return `text` if it is a valid tenant name. Raises BadRequest."""
    if re.fullmatch(TENANT_PATTERN, text) is None:
        raise BadRequest(
            f"tenant {text!r}: must have 1 to 32 letters, digits and '-', and not begin with '-'"
        )
    if text in RESERVED_TENANTS:
        raise BadRequest(f"tenant {text!r}: is a reserved name; choose another one")
    return text


class RemainingData(NamedTuple):
    """Names of data that a tenant still has, and how many items or files were checked."""

    found: list[str]
    checked: int


class TenantStore(Protocol):
    """One store with data of a tenant, for deleting the tenant and checking that nothing remains.

    Features register a function that opens their stores (`Feature.tenant_stores`).
    """

    name: str

    def delete(self) -> AsyncIterator[int]:
        """Delete everything in bounded steps; yield the number of deleted objects after each step.

        Guarantees:
            Idempotent and resumable: after a crash, another call deletes the rest.
        """

    async def find_remaining(self, limit: int) -> RemainingData:
        """Return at most `limit` names of data that the tenant still has."""


class WriteFence:
    """Stops all calls of a process to DynamoDB and S3 while its tenant is blocked.

    Two sources report a block: Redis (within a second), and the item with the tenant's schema
    version in the `directory` table, which is read even if Redis is down or has been replaced.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def reason(self) -> str:
        """The reason why calls are refused, or an empty string."""
        return next(iter(self._reasons.values()), "")

    def set(self, source: str, reason: str) -> None:
        """Set the reason for the block that `source` reports; an empty `reason` removes it."""
        before = self._reasons.get(source, "")
        if reason:
            self._reasons[source] = reason
        else:
            self._reasons.pop(source, None)
        if reason != before:
            self._changed.set()

    async def wait_changed(self, within_s: float) -> None:
        """Wait up to `within_s` seconds until a block is set or removed.

        If this has happened since the last call, return immediately. The caller then reads the
        tenant's DynamoDB item at once, before its next periodic check.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        self._changed.clear()
