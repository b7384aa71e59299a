"""Definition of a migration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages.item_repair import Mend
from chatserver.warm.schema.tables import Index, Table

Kind = Literal["expand", "fill", "contract"]


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema change (`idea`).

    `mend` returns the repair of an item, given its attributes `reads`; it is set for a fill and for
    a contract, which makes a second pass. `expiry` is the attribute that TTL reads afterwards.
    `oldest` is the minimum schema version of processes from this migration on.
    """

    number: int
    name: str
    kind: Kind
    idea: str
    table: Table
    why: str
    index: Index | None = None
    expiry: str | None = None
    mend: Callable[[Item], Mend | None] | None = None
    reads: tuple[str, ...] = ()
    oldest: int = 0
