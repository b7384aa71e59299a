"""Example items of pinned messages, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.features.pins.model import Pin, PinCount
from chatserver.features.pins.warm import PIN, PIN_COUNT
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_TS: Final = 1_795_000_000_000_000


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a group's pin and its pin count."""
    if table is not DIRECTORY:
        return []
    chat, seq = "g-team", 5
    pin = Pin(seq, ts=_TS + seq * 1_000_000, pinned_at_ms=_TS // 1000)
    count = PinCount(1, "7f83b1657ff1fc53")
    return [PIN.encode(pin, chat=chat), PIN_COUNT.encode(count, chat=chat)]
