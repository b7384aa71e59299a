"""The migrations of DynamoDB's tables, by number, and what carries them out.

A change of the schema is never made at once. Its *idea* goes through up to three kinds of steps,
each a migration of its own:

    expand    something more: an index, rows of a new kind. No process notices.
    fill      items of before get what new ones are written with. Old processes go on meanwhile.
    contract  readers rely on it. Processes that do not write it are refused from then on.

A contract comes in a run of its own, which is asked for by name: it is the step after which there
is no way back to an older release. The procedure is in docs/evolution.md.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.migrations.m0001_files_index import FILES_INDEX_MADE
from chatserver.warm.migrations.m0002_files_filled import FILES_FILLED
from chatserver.warm.migrations.m0003_pins import PINS_ALLOWED
from chatserver.warm.migrations.m0004_files_only import FILES_READ_BY_INDEX
from chatserver.warm.migrations.m0005_ttl import TTL_ALLOWED
from chatserver.warm.migrations.m0006_ttl_filled import TTL_FILLED
from chatserver.warm.migrations.m0007_ttl_only import TTL_READ
from chatserver.warm.migrations.steps import Migration

MIGRATIONS: Final[tuple[Migration, ...]] = (
    FILES_INDEX_MADE,
    FILES_FILLED,
    PINS_ALLOWED,
    FILES_READ_BY_INDEX,
    TTL_ALLOWED,
    TTL_FILLED,
    TTL_READ,
)
