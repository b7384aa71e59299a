"""Two worked examples of schema changes, which the migration tests run on tables in use."""

from __future__ import annotations

from tests.integration.warm.schema.examples.pinned_messages import PIN_MIGRATION
from tests.integration.warm.schema.examples.thread_index import THREAD_MIGRATIONS

EXAMPLES = (*THREAD_MIGRATIONS, PIN_MIGRATION)
