"""Example items of pinned messages, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.features.pins.warm import sort_key
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.directory_attributes import PinField as Field
from chatserver.warm.schema.tables import DIRECTORY, Table

_TS: Final = 1_795_000_000_000_000


def sample_items(table: Table) -> Iterable[Item]:
    """Return a group's pin and its pin count."""
    if table is not DIRECTORY:
        return []
    chat, seq = "g-team", 5
    pin = {Field.TS: {"N": str(_TS + seq * 1_000_000)}, Field.PINNED_AT: {"N": str(_TS // 1000)}}
    count = {Field.PINS: {"N": "1"}, Field.REQUEST: {"S": "7f83b1657ff1fc53"}}
    return [
        row_key(chat_key(chat), sort_key(chat, seq)) | pin,
        row_key(chat_key(chat), f"pins#{chat}") | count,
    ]
