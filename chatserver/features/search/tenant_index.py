"""Deletion and audit of a tenant's local index files, for `chatserver tenants`.

An index in the S3 bucket is deleted and audited with the tenant's other objects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from chatserver.config import Settings
from chatserver.domain.access.tenants import RemainingData, TenantStore
from chatserver.features.search.engines.registry import get_index_folder, is_enabled, is_in_bucket

FILES: Final = "messages-*"


class TenantIndex:
    """The index files of one tenant. `folder` is None if the index is not in local files.

    Stop the tenant's indexer first; otherwise it creates the files again.
    """

    name = "search"

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def delete(self) -> AsyncIterator[int]:
        """See `TenantStore`."""
        for file in await asyncio.to_thread(self._list):
            await asyncio.to_thread(file.unlink, missing_ok=True)
            yield 1

    async def find_remaining(self, limit: int) -> RemainingData:
        """See `TenantStore`."""
        files = await asyncio.to_thread(self._list)
        return RemainingData([str(file) for file in files[:limit]], len(files))

    def _list(self) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob(FILES))


@contextlib.asynccontextmanager
async def open_tenant_index(settings: Settings, tenant: str) -> AsyncIterator[TenantStore]:
    """Open a tenant's index files on this machine."""
    has_folder = is_enabled(settings) and not is_in_bucket(settings)
    yield TenantIndex(get_index_folder(settings, tenant) if has_folder else None)
