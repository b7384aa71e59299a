"""Two worked examples of schema changes, run by the tests of migrations on tables in use."""

from __future__ import annotations

from tests.integration.warm.schema.examples.pinned_messages import PIN_MIGRATION
from tests.integration.warm.schema.examples.thread_index import THREAD_MIGRATIONS

EXAMPLES = (*THREAD_MIGRATIONS, PIN_MIGRATION)
