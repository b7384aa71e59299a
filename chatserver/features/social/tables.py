"""DynamoDB attributes of post fan-outs, in table `directory`."""

from __future__ import annotations

from typing import Final


class FanoutField:
    """Attributes of pending post fan-outs to timelines, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    CHECKPOINT: Final = "place"  # last follower processed
    FIRST: Final = "first"  # authors whose posts are merged on read: id of the first such post
    LAST: Final = "last"  # authors whose posts are merged on read: id of the newest such post
    CREATED: Final = "created"  # milliseconds since 1970
