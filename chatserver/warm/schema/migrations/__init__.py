"""Schema migrations of the DynamoDB tables: the ordered list, and the modules that run it.

Version 1 is the schema that `chatserver.warm.schema.provisioning` creates; migrations are numbered
from 2. Each schema change is split into steps, each a migration of its own:

    expand    adds an index or a kind of item. Running processes are not affected.
    fill      backfills existing items. Older processes keep running.
    contract  makes readers rely on the change, or removes the old attribute. Older processes are
              rejected.

A contract runs separately and only on explicit request, because it makes a rollback to an older
release impossible. docs/evolution.md has the procedure and two worked examples. To read the code,
start with `runner`.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema.migrations.migration import Migration

MIGRATIONS: Final[tuple[Migration, ...]] = ()
