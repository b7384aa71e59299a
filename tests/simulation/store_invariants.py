"""Checks the data in Redis, DynamoDB and S3 when the system is idle.

The history checker sees what clients see. These invariants also find wrong data that no client has
read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.environment import get_wall_time
from tests.simulation.stores import dynamodb_invariants, redis_invariants
from tests.simulation.stores.snapshot import Limits, Stores
from tests.support.history.violation import Violation

Invariant = Callable[[Stores], Iterator[str]]

INVARIANTS: Final[dict[str, Invariant]] = {
    "KEY_EXPIRY": redis_invariants.find_keys_with_wrong_expiry,
    "KEY_OWNER": redis_invariants.find_keys_without_owner,
    "NOTHING_WAITS": redis_invariants.find_waiting_entries,
    "PROGRESS": redis_invariants.find_leftover_progress,
    "CHANGES_FINISHED": redis_invariants.find_overdue_changes,
    "CHAT_HEAD": redis_invariants.find_wrong_heads,
    "CHAT_REFS": redis_invariants.find_wrong_refs,
    "CHAT_LOG": redis_invariants.find_wrong_logs,
    "CHAT_OVERLAY": redis_invariants.find_wrong_overlays,
    "CHAT_MEMBERS": redis_invariants.find_wrong_members,
    "INBOX_POSITIONS": redis_invariants.find_inbox_gaps,
    "INBOX_ONCE": redis_invariants.find_repeated_events,
    "ROUTES": redis_invariants.find_wrong_routes,
    "MARKS": redis_invariants.find_wrong_marks,
    "HIDDEN": redis_invariants.find_wrong_hidden,
    "ITEM_POSITIONS": dynamodb_invariants.find_wrong_positions,
    "ITEM_IDS": dynamodb_invariants.find_repeated_ids,
    "ITEM_INDEXES": dynamodb_invariants.find_wrong_index_attributes,
    "ITEM_STATE": dynamodb_invariants.find_wrong_states,
    "ITEM_EDITS": dynamodb_invariants.find_replaced_edits,
    "CHAT_ROWS": dynamodb_invariants.find_wrong_rows,
    "CHAT_MEMBERSHIPS": dynamodb_invariants.find_wrong_memberships,
    "SEGMENTS": dynamodb_invariants.find_wrong_segments,
    "ARCHIVED_ITEMS": dynamodb_invariants.find_archived_items,
    "ARCHIVE_OBJECTS": dynamodb_invariants.find_orphaned_objects,
}


def read_stores(cluster: Cluster, *, has_lost: bool) -> Stores:
    """Return the data of the simulated servers."""
    settings = cluster.settings
    return Stores(
        cluster.redis.keyspace,
        cluster.dynamodb.server.tables,
        {key: found.data for key, found in cluster.objects.bucket.objects.items()},
        limits=Limits(settings.redis.inbox_max, settings.redis.log_max, cluster.log_min),
        now_s=get_wall_time(cluster.loop),
        table_prefix=settings.warm.table_prefix,
        has_lost=has_lost,
    )


def find_violations(stores: Stores) -> list[Violation]:
    """Return the violations of all invariants."""
    return [Violation(name, text) for name, find in INVARIANTS.items() for text in find(stores)]
