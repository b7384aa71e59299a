"""Example items of the analytics export, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.domain.ids import ChatId
from chatserver.features.analytics.model import Unit
from chatserver.features.analytics.tables import ExportField as Field
from chatserver.features.analytics.warm import UNIT
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_UNIT: Final = Unit(ChatId("g-archived"), 1, 1000, "01KAJ6B9D3F5G7H1J2K4M6N8PQ")


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return the item of a range of entries (a unit) that has been exported."""
    if table is not DIRECTORY:
        return []
    written = {Field.SHA256: {"S": "2c26b46b68ffc68f"}, Field.VERSION: {"S": "fcde2b2edba56bf4"}}
    return [UNIT.encode(_UNIT) | written]
