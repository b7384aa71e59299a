"""Which shards of a Stream may be read, and by whom. No I/O.

A shard that was split, or that simply ended, is continued by its children: what happened to an item
in the parent came before what happens to it in a child. So a shard may be read once its parent is
wholly read, or is not there any more.

Who reads what is agreed on by leases alone (`chatserver.warm.streamrows`); `plan` says what one
reader should do next, from what it sees, so that the shards spread over the readers that live.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

# Records are kept for 24 hours. A shard that is gone earlier is not gone, but badly listed.
KEPT_MS: Final = 24 * 3_600_000
SLACK_MS: Final = 3_600_000


class Shard(NamedTuple):
    """A shard as DynamoDB lists it."""

    id: str
    parent: str | None
    arn: str = ""

    @property
    def name(self) -> str:
        """What it is called among the shards of all streams."""
        return name_of(self.arn, self.id)

    @property
    def parent_name(self) -> str | None:
        """What its parent is called."""
        return None if self.parent is None else name_of(self.arn, self.parent)


def name_of(arn: str, id_: str) -> str:
    """Return what a shard is called among the shards of all streams of a table."""
    return f"{arn.rpartition('/')[2]}/{id_}"


class Standing(NamedTuple):
    """How far a shard is read: all of it up to `place`, and all that is older than `read_to_ms`.

    `holder` is the reader that has it, if one does.
    """

    name: str
    place: str | None = None
    is_done: bool = False
    read_to_ms: int = 0
    holder: str | None = None


class Plan(NamedTuple):
    """What a reader should do: try to take shards, give some back, and mourn those that are gone.

    `late`: by how much the shard that is furthest behind is, in ms.
    """

    take: list[Shard]
    give_back: list[str]
    lost: list[Standing]
    late_ms: int


def plan(
    listed: Sequence[Shard],
    standings: Mapping[str, Standing],
    readers: Collection[str],
    me: str,
    now_ms: int,
) -> Plan:
    """Return what the reader `me` should do. `readers` are those that live.

    Guarantees:
        A shard is taken only when its parent is done, or is neither listed nor known as unfinished.
        When readers stay the same, each readable shard is soon one's, and they have about as many.
    """
    names = {shard.name for shard in listed}
    missing = [each for name, each in standings.items() if name not in names and not each.is_done]
    lost = [each for each in missing if now_ms - each.read_to_ms > KEPT_MS - SLACK_MS]
    waited_for = names | {each.name for each in missing}
    done = {name for name, each in standings.items() if each.is_done} | {each.name for each in lost}
    nobody = Standing("")

    def may_read(shard: Shard) -> bool:
        parent = shard.parent_name
        is_free = parent is None or parent in done or parent not in waited_for
        return is_free and shard.name not in done

    readable = [shard for shard in sorted(listed) if may_read(shard)]
    holders = {shard.name: standings.get(shard.name, nobody).holder for shard in readable}
    mine = [name for name, holder in holders.items() if holder == me]
    free = [shard for shard in readable if holders[shard.name] is None]
    share = math.ceil(len(readable) / len({*readers, me}))
    known = [each for each in standings.values() if not each.is_done and each not in lost]
    late_ms = max((now_ms - each.read_to_ms for each in known), default=0)
    return Plan(free[: max(0, share - len(mine))], mine[share:], lost, max(0, late_ms))
