"""Ids of companions and of their session chats, which the core must recognize. No I/O.

A companion's id is a user id with the prefix `PREFIX`, which no account can have. Everything else
about companions is in `chatserver.features.companions`.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from chatserver.domain.ids import UserId, parse_id
from chatserver.errors import BadRequest

CompanionId = NewType("CompanionId", UserId)

PREFIX: Final = "ai-"
VERSIONS_MAX: Final = 10_000

# The pattern is valid in JSON Schema and msgspec too. In Python, a bare `$` would also match before
# a trailing newline.
ID_PATTERN: Final = r"^ai-[a-z0-9][a-z0-9_-]{0,36}(?![\s\S])"
_ID = re.compile(r"ai-[a-z0-9][a-z0-9_-]{0,36}")
# A ULID. Ids of other chats contain a dash, so they never match.
_SESSION_CHAT = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def parse_companion_id(text: str, field: str = "companion") -> CompanionId:
    """Return `text` if it is the id of a companion. Raises BadRequest."""
    if _ID.fullmatch(text) is None:
        raise BadRequest(
            f"{field}: must be {PREFIX} followed by 1 to 37 characters of a-z 0-9 _ -, "
            "starting with a letter or digit"
        )
    return CompanionId(UserId(text))


def is_companion(user: str) -> bool:
    """Return whether a user id has the prefix that is reserved for companions."""
    return user.startswith(PREFIX)


def parse_person_id(text: str, field: str) -> UserId:
    """Return `text` if it is a valid id of a person. Raises BadRequest."""
    user = UserId(parse_id(text, field))
    if is_companion(user):
        raise BadRequest(f"{field}: must not begin with {PREFIX}, which is reserved for companions")
    return user


def is_session_chat(chat: str) -> bool:
    """Return whether an id has the format of a session chat; the chat itself may not exist."""
    return _SESSION_CHAT.fullmatch(chat) is not None
