"""The dearest valid input, by CPU time, of each frame and route that has a choice of sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from chatserver.domain.text_validation import BODY_CHARS_MAX, NAME_CHARS_MAX
from chatserver.features.chat_preferences.model import PINNED_CHATS_MAX
from chatserver.protocol.frames import (
    DRAFT_CHARS_MAX,
    INVITE_MAX,
    LARGE_MAX,
    MEMBERS_MAX,
    UNSTORED_MAX,
    WATCH_MAX,
)

OTHERS: Final = [f"other-{number}" for number in range(MEMBERS_MAX - 1)]
ZALGO: Final = "e" + "\u0301\u0323" * 4


def repeat(text: str, chars: int) -> str:
    """Return `text`, repeated up to a number of characters."""
    return (text * chars)[:chars].strip()


MARKS: Final = repeat(ZALGO, BODY_CHARS_MAX)
WIDE: Final = repeat("\U00010400\u0958 ", 3 * BODY_CHARS_MAX // 4)  # of many bytes; NFC extends it
NAME: Final = repeat(ZALGO, NAME_CHARS_MAX)
# 16 phrases with 64 words in all, each of which occurs very often in `WORDS`.
WORDS: Final = repeat("a b ", BODY_CHARS_MAX)
PHRASES: Final = " ".join(f'"{repeat("a b ", 2 * size - 1)}"' for size in range(1, 11))


@dataclasses.dataclass(frozen=True)
class Dearest:
    """The dearest input of a request: what it is, and the fields or query parameters."""

    label: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)


TEXT = Dearest("text of 4,000 combining marks", {"body": MARKS})
CURSORS = {f"g-{number:05d}": number for number in range(LARGE_MAX)}

DEAREST: Final[dict[str, Dearest]] = {
    # frames
    "hello": Dearest(
        "cursors of 1,000 large chats, 100 chats with unstored sends",
        {"large": CURSORS, "unstored": dict(list(CURSORS.items())[:UNSTORED_MAX])},
    ),
    "send": TEXT,
    "edit": TEXT,
    "create_chat": Dearest("255 members", {"members": OTHERS, "name": NAME}),
    "invite": Dearest("99 users", {"users": OTHERS[:INVITE_MAX]}),
    "watch": Dearest("100 users", {"users": OTHERS[:WATCH_MAX]}),
    "unwatch": Dearest("100 users", {"users": OTHERS[:WATCH_MAX]}),
    "update_chat": Dearest(
        "name and topic of combining marks", {"name": NAME, "topic": repeat(ZALGO, 500)}
    ),
    "report": Dearest("reason of 500 combining marks", {"reason": repeat(ZALGO, 500)}),
    "search": Dearest(
        "16 words and phrases, 50 results", {"q": PHRASES, "limit": 50, "order": "relevance"}
    ),
    # routes
    "PATCH /v1/me": Dearest(
        "name and text of combining marks",
        {"name": NAME, "about": repeat(ZALGO, 500), "discoverable": True},
    ),
    "POST /v1/chats": Dearest("255 members", {"members": OTHERS, "name": NAME}),
    "POST /v1/admin/chats": Dearest("255 members", {"members": OTHERS, "name": NAME}),
    "PATCH /v1/chats/{chat}": Dearest(
        "name and topic of combining marks", {"name": NAME, "topic": repeat(ZALGO, 500)}
    ),
    "POST /v1/chats/{chat}/members": Dearest("99 users", {"users": OTHERS[:INVITE_MAX]}),
    "POST /v1/chats/{chat}/messages": TEXT,
    "PATCH /v1/chats/{chat}/messages/{seq}": TEXT,
    "POST /v1/admin/chats/{chat}/messages": TEXT,
    "POST /v1/admin/broadcasts": Dearest(
        "100 users, text of 4,000 combining marks", {"users": OTHERS[:100], "body": MARKS}
    ),
    "PUT /v1/chats/{chat}/messages/{seq}/report": Dearest(
        "reason of 500 combining marks", {"reason": repeat(ZALGO, 500)}
    ),
    "PATCH /v1/chats/{chat}/preferences": Dearest(
        "draft of 4,000 combining marks",
        {"draft": {"text": repeat(ZALGO, DRAFT_CHARS_MAX), "version": 1}},
    ),
    "POST /v1/me/posts": Dearest("post of 2,000 combining marks", {"content": repeat(ZALGO, 2000)}),
    "GET /v1/presence": Dearest("100 users", query={"user": OTHERS[:WATCH_MAX]}),
    "GET /v1/users": Dearest("100 users", query={"user": OTHERS[:WATCH_MAX]}),
    "GET /v1/search": Dearest(
        "16 words and phrases, 50 results", query={"q": PHRASES, "order": "relevance"}
    ),
    "GET /v1/user-search": Dearest("8 words; 800 users match", query={"q": "e f g h i j k l"}),
    "PUT /v1/me/pinned-chats": Dearest(
        "50 chats", {"chats": [f"g-{number:05d}" for number in range(PINNED_CHATS_MAX)]}
    ),
}
