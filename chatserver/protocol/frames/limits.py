"""Limits of the protocol: the largest values that a frame accepts."""

from __future__ import annotations

from typing import Final

from chatserver.domain.page_limits import ITEMS_MAX

PAGE_MAX = ITEMS_MAX
MEMBERS_MAX = 256  # maximum members of a new group, and by default of a chat that is not large
MEMBERS_SHOWN_MAX = 256
# Maximum members listed in an event, because every inbox has a copy; larger groups list none.
EVENT_MEMBERS_MAX = 20
INVITE_MAX = 99  # maximum users per request; they are added in one transaction
EXPIRES_S_MAX = 31_536_000  # maximum lifetime of a message: a year
WATCH_MAX = 100  # maximum users per `watch` frame, and per request for profiles or presence
TOKEN_CHARS_MAX = 4096
LARGE_MAX = 1000  # maximum large chats whose positions a device sends in `hello`
UNSTORED_MAX = 100  # maximum chats with unstored sends that a device lists in `hello`
ATTACHMENTS_MAX = 10
CURSOR_CHARS_MAX = 1024  # maximum characters of a signed page cursor
DRAFT_CHARS_MAX = 4000
REACTIONS_MAX: Final = 1_000  # maximum reactions per message
SLOW_S_MAX = 86_400
RETENTION_S_MAX = 315_360_000  # ten years
MUTE_S_MAX = 31_536_000
REASON_CHARS_MAX = 500
INT_MAX = 2**53 - 1
