"""DynamoDB attributes of pinned messages, in table `directory`."""

from __future__ import annotations

from typing import Final


class PinField:
    """Attributes of pinned messages, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    TS: Final = "ts"  # the message's ts, microseconds since 1970
    PINNED_AT: Final = "pinned_at"  # milliseconds since 1970
    PINS: Final = "pins"  # chats: number of pinned messages
    REQUEST: Final = "request"  # chats: digest of the request that made the last change
