"""Slot owners of a Redis Cluster, computed from its nodes' views. No I/O.

A view is one node's reply to CLUSTER NODES. After a failover or a slot migration, the nodes' views
differ for a moment. If several nodes claim a slot, the node with the highest config epoch wins,
because a promoted node or a migration target has a higher config epoch than the previous owner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from chatserver.errors import CorruptData

_Range = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterMember:
    """A cluster node, as seen by itself or by another node."""

    id: str
    host: str
    port: int
    is_master: bool
    is_healthy: bool
    config_epoch: int
    slots: tuple[_Range, ...]

    @property
    def address(self) -> str:
        """The node's ``host:port``."""
        return f"{self.host}:{self.port}"

    def has_slot(self, slot: int) -> bool:
        """Return whether the node claims the slot."""
        return any(first <= slot <= last for first, last in self.slots)


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster state as reported by one node, `me`."""

    me: str
    members: dict[str, ClusterMember]
    importing: frozenset[int]  # slots that are being migrated to this node
    replid: str = ""  # replication id of the node
    replicas: int = 0  # replicas of the node that acknowledge writes

    def has_or_imports(self, slot: int) -> bool:
        """Return whether the reporting node has the slot or is importing it."""
        return slot in self.importing or self.members[self.me].has_slot(slot)


def parse_view(
    text: str, queried_host: str, *, replid: str = "", replicas: int = 0, by_name: bool = False
) -> ClusterView:
    """Parse the reply to CLUSTER NODES.

    `queried_host` is used if the node does not know its own host. If `by_name`, use the host names
    that nodes announce, because TLS certificates contain names.

    Raises:
        CorruptData: the reply is malformed.
    """
    members: dict[str, ClusterMember] = {}
    me, importing = "", frozenset[int]()
    try:
        for line in text.splitlines():
            fields = line.split()
            if not fields:
                continue
            flags = fields[2].split(",")
            ranges = [field for field in fields[8:] if not field.startswith("[")]
            address, _, names = fields[1].partition(",")
            host, _, port = address.partition("@")[0].rpartition(":")
            name = names.split(",")[0]
            if by_name and name and "=" not in name:
                host = name
            members[fields[0]] = ClusterMember(
                id=fields[0],
                host=host or queried_host,
                port=int(port),
                is_master="master" in flags,
                is_healthy=not {"fail", "fail?", "handshake", "noaddr"} & {*flags},
                config_epoch=int(fields[6]),
                slots=tuple(_parse_range(text) for text in ranges),
            )
            if "myself" in flags:
                me = fields[0]
                moving = [field[1:-1] for field in fields[8:] if "-<-" in field]
                importing = frozenset(int(field.partition("-<-")[0]) for field in moving)
    except (ValueError, IndexError) as exc:
        raise CorruptData(f"redis at {queried_host}: cannot read CLUSTER NODES: {exc}") from exc
    if not me:
        raise CorruptData(f"redis at {queried_host}: CLUSTER NODES has no `myself` entry")
    return ClusterView(me, members, importing, replid, replicas)


def _parse_range(text: str) -> _Range:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class SlotClaims:
    """The owner of each slot, computed from the replies of several nodes (`ClusterView`)."""

    def __init__(self, views: Iterable[ClusterView]) -> None:
        best: dict[tuple[_Range, str], tuple[int, bool]] = {}
        for view in views:
            for member in view.members.values():
                if not member.is_master:
                    continue
                # If config epochs are equal, a node's reply about its own slots outranks other
                # nodes' replies.
                weight = (member.config_epoch, member.id == view.me)
                for span in member.slots:
                    claim = (span, member.id)
                    best[claim] = max(best.get(claim, weight), weight)
        self._claims = [
            (first, last, weight, node) for ((first, last), node), weight in best.items()
        ]

    def find_owner(self, slot: int) -> str | None:
        """Return the id of the node that serves the slot, or None."""
        owners = [
            (weight, node) for first, last, weight, node in self._claims if first <= slot <= last
        ]
        return max(owners)[1] if owners else None
