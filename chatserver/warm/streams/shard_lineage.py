"""Shard lineage: the order in which a Stream's shards are read, and their distribution over
readers. No I/O.

When a shard ends, its child shards continue it. The parent's changes to an item are older than the
child's, so a shard is read only when its parent has been read completely or no longer exists.

Only leases assign shards to readers (`chatserver.warm.streams.checkpoints`). `plan` returns the
next actions of one reader, so that shards are balanced over the live readers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

# DynamoDB keeps records for 24 hours. A shard that is missing from its list, but was read up to a
# more recent time, is not lost: the list is incomplete.
KEPT_MS: Final = 24 * 3_600_000
SLACK_MS: Final = 3_600_000


class Shard(NamedTuple):
    """A shard as DynamoDB lists it."""

    id: str
    parent: str | None
    arn: str = ""

    @property
    def name(self) -> str:
        """The unique name of the shard among all streams of the table."""
        return build_shard_name(self.arn, self.id)

    @property
    def parent_name(self) -> str | None:
        """The unique name of the parent shard."""
        return None if self.parent is None else build_shard_name(self.arn, self.parent)


def build_shard_name(arn: str, id_: str) -> str:
    """Return the unique name of a shard among all streams of a table."""
    return f"{arn.rpartition('/')[2]}/{id_}"


class ShardProgress(NamedTuple):
    """Progress of a shard.

    `position` is the sequence number of the last processed record, and `read_to_ms` the time up to
    which the shard has been read. `holder` is the reader that holds the shard's lease, or None.
    """

    name: str
    position: str | None = None
    is_done: bool = False
    read_to_ms: int = 0
    holder: str | None = None


class ShardPlan(NamedTuple):
    """Next actions of a reader: shards to claim, to release, and to report as lost.

    A shard is lost if it expired before it was read. `late_ms` is the lag of the shard that is
    furthest behind.
    """

    to_claim: list[Shard]
    to_release: list[str]
    lost: list[ShardProgress]
    late_ms: int


def plan(
    listed: Sequence[Shard],
    progress: Mapping[str, ShardProgress],
    readers: Collection[str],
    me: str,
    now_ms: int,
) -> ShardPlan:
    """Return the next actions of reader `me`. `readers` are the live readers.

    Guarantees:
        A shard is claimed only if its parent is complete, is lost, or no longer exists.
        While the set of readers is stable, readable shards are distributed evenly among the
        readers.
    """
    names = {shard.name for shard in listed}
    missing = [shard for name, shard in progress.items() if name not in names and not shard.is_done]
    lost = [shard for shard in missing if now_ms - shard.read_to_ms > KEPT_MS - SLACK_MS]
    waited_for = names | {shard.name for shard in missing}
    done = {name for name, shard in progress.items() if shard.is_done} | {
        shard.name for shard in lost
    }
    no_progress = ShardProgress("")

    def may_read(shard: Shard) -> bool:
        parent = shard.parent_name
        is_free = parent is None or parent in done or parent not in waited_for
        return is_free and shard.name not in done

    readable = [shard for shard in sorted(listed) if may_read(shard)]
    holders = {shard.name: progress.get(shard.name, no_progress).holder for shard in readable}
    mine = [name for name, holder in holders.items() if holder == me]
    free = [shard for shard in readable if holders[shard.name] is None]
    share = math.ceil(len(readable) / len({*readers, me}))
    reading = [shard for shard in progress.values() if not shard.is_done and shard not in lost]
    late_ms = max((now_ms - shard.read_to_ms for shard in reading), default=0)
    return ShardPlan(free[: max(0, share - len(mine))], mine[share:], lost, max(0, late_ms))
