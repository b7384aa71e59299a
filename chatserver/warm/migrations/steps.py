"""What a migration says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from chatserver.warm.client import Item
from chatserver.warm.mending import Mend
from chatserver.warm.tables import Index, Table

Kind = Literal["expand", "fill", "contract"]


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """One step of an idea.

    `mend` says what an item lacks, from its attributes `reads`: of a fill, which gives it to all
    items, and of a contract, which looks once more. `expiry`: what the table's TTL reads
    afterwards. `oldest` is the schema that processes must act by from this migration on.
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
