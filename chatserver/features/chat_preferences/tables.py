"""DynamoDB attributes of chat preferences, in table `directory`."""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema.tables import DirectoryField


class ChatPreferencesField:
    """Attributes of users' chat preferences and pinned chats, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    REV: Final = "rev"  # rises with each write
    ARCHIVED: Final = "archived"  # true, or absent
    MUTED_UNTIL: Final = "muted_until"  # end of the mute, seconds since 1970; 0 means forever
    UNREAD: Final = "unread"  # true if the chat is marked as unread; otherwise absent
    TEXT: Final = DirectoryField.TEXT  # the draft
    DRAFT: Final = "draft"  # version of the draft
    CLEARED: Final = "cleared"  # chat seq: messages up to it are not shown
    PINNED_CHATS: Final = "pinned_chats"  # ids of the pinned chats, in order
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: TTL of items with only default values
