"""Settings of chats and messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chatserver.config.section import Section
from chatserver.domain.page_limits import ITEMS_MAX, PageBounds
from chatserver.domain.text_validation import BODY_BYTES_MAX, BODY_CHARS_MAX, BODY_TOP, BodyBounds


class Chats(Section):
    """Messages, groups and direct chats."""

    body_chars_max: int = Field(
        BODY_CHARS_MAX, ge=1, le=BODY_TOP, description="Maximum characters per message"
    )
    body_bytes_max: int = Field(
        BODY_BYTES_MAX, ge=4, le=BODY_TOP, description="Maximum UTF-8 bytes per message"
    )
    fanout_members_max: int = Field(
        256,
        ge=2,
        le=10_000,
        description="Maximum members of a chat whose messages are written to inboxes; a chat with "
        "more members is a large chat",
    )
    per_user_max: int = Field(
        2_000,
        ge=1,
        le=2_000,
        description="Maximum groups per user, and also maximum direct chats per user",
    )
    new_contacts_per_day: int = Field(
        50, ge=1, description="Maximum direct chats that a user may start with strangers per day"
    )
    invitations: Literal["ask_strangers", "always", "never"] = Field(
        "ask_strangers",
        description="When users must consent to being added to a group: "
        "if a stranger adds them, always, or never",
    )

    @property
    def request_bytes_max(self) -> int:
        """The maximum size in bytes of a request or frame: enough for the longest body.

        In JSON, a two-byte character can take six bytes.
        """
        return max(65_536, 3 * self.body_bytes_max + 8_192)

    @property
    def body_bounds(self) -> BodyBounds:
        """The maximum length of a message body."""
        return BodyBounds(self.body_chars_max, self.body_bytes_max)

    @property
    def page_bounds(self) -> PageBounds:
        """The maximum size of one page."""
        return PageBounds(ITEMS_MAX)
