"""Schema migrations of the DynamoDB tables: the ordered list, and the modules that run it.

Each schema change is split into up to three kinds of steps, each a migration of its own:

    expand    adds an index or a kind of item. Running processes are not affected.
    fill      backfills existing items. Older processes keep running.
    contract  readers rely on the change. Processes that do not write it are rejected.

A contract runs separately and only on explicit request: after it, there is no way back to an older
release. See docs/evolution.md for the procedure. Start with `running`.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema.migrations.m0001_files_index import FILES_INDEX_MADE
from chatserver.warm.schema.migrations.m0002_files_filled import FILES_FILLED
from chatserver.warm.schema.migrations.m0003_pins import PINS_ALLOWED
from chatserver.warm.schema.migrations.m0004_files_only import FILES_READ_BY_INDEX
from chatserver.warm.schema.migrations.m0005_ttl import TTL_ALLOWED
from chatserver.warm.schema.migrations.m0006_ttl_filled import TTL_FILLED
from chatserver.warm.schema.migrations.m0007_ttl_only import TTL_READ
from chatserver.warm.schema.migrations.steps import Migration

MIGRATIONS: Final[tuple[Migration, ...]] = (
    FILES_INDEX_MADE,
    FILES_FILLED,
    PINS_ALLOWED,
    FILES_READ_BY_INDEX,
    TTL_ALLOWED,
    TTL_FILLED,
    TTL_READ,
)
