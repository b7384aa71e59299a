"""Definition of a migration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import Index, TableSchema


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """Attributes to set in an item and to remove from it."""

    sets: Item = dataclasses.field(default_factory=dict)
    removes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema change `change`.

    `repair` takes an item with the attributes in `reads`, and returns the changes that the item
    needs, if any. Fills have a `repair`, and so do contracts, which make a second pass. `expiry` is
    the new TTL attribute, if it changes. `oldest` is the minimum schema version of processes after
    the migration.
    """

    number: int
    name: str
    kind: Literal["expand", "fill", "contract"]
    change: str
    table: TableSchema
    why: str
    index: Index | None = None
    expiry: str | None = None
    repair: Callable[[Item], Repair | None] | None = None
    reads: tuple[str, ...] = ()
    oldest: int = 0

    @property
    def title(self) -> str:
        return f"{self.number} {self.name}"
