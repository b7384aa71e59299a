"""Social graph: users, follow edges, posts and timeline entries. No I/O.

Post ids are ULIDs, so ids of later posts sort after earlier ones. `PostIds` keeps this order within
a millisecond and when the clock goes backward.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Final, Literal, NewType

from ulid import ULID

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.ids import UserId
from chatserver.domain.text_validation import BodyBounds, parse_body
from chatserver.errors import BadRequest

PostId = NewType("PostId", str)  # a ULID

POST_CHARS_MAX: Final = 2_000
POST_BYTES_MAX: Final = 8_192
FAVORITES_MAX: Final = 1_000  # maximum saved posts per user; the same for saved messages
_CONTENT: Final = BodyBounds(POST_CHARS_MAX, POST_BYTES_MAX)
_RANDOM_BITS: Final = 80
# A pattern for JSON Schema and msgspec, like `chatserver.domain.ids.ID_PATTERN`.
POST_PATTERN: Final = r"^[0-7][0-9A-HJKMNP-TV-Z]{25}(?![\s\S])"
_POST = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")

Change = Literal[1, -1]  # number added to a count


@dataclasses.dataclass(frozen=True, slots=True)
class Info:
    """Public profile of a user."""

    user: str
    name: str | None = None
    about: str | None = None
    avatar: str | None = None  # id of an attachment


@dataclasses.dataclass(frozen=True, slots=True)
class UserCounts:
    """A user's follower, following and post counts."""

    followers: int = 0
    following: int = 0
    posts: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class GraphEdge:
    """A follower, followed user or liker, and the time of the follow or like (ms since 1970)."""

    user: str
    since_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Post:
    """A post. Times are milliseconds since 1970."""

    id: PostId
    author: str
    content: str
    created_ms: int
    image: str | None = None  # id of an attachment
    edited_ms: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PostRef:
    """Timeline entry: the id of a post and its author. Sorts chronologically."""

    post: PostId
    author: str


class PostIds:
    """Generates post ids, each greater than the previous one. One instance per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest = 0

    def next(self) -> PostId:
        now_ms = get_now_ms(self._clock)
        if now_ms > self._newest >> _RANDOM_BITS:
            # The highest random bit stays 0, so that increments do not overflow into the timestamp.
            random = int.from_bytes(os.urandom(10), "big") >> 1
            self._newest = now_ms << _RANDOM_BITS | random
        else:
            self._newest += 1
        return PostId(str(ULID.from_int(self._newest)))


def parse_post_id(text: str, field: str = "post") -> PostId:
    """Validate a post id. Raises BadRequest."""
    if _POST.fullmatch(text) is None:
        raise BadRequest(f"{field}: must be the id of a post, with 26 characters")
    return PostId(text)


def first_post_id(at_s: float) -> PostId:
    """Return a lower bound of the ids of posts created at or after `at_s` (s since 1970)."""
    return PostId(str(ULID.from_int(max(0, int(at_s * 1000)) << _RANDOM_BITS)))


def get_created_ms(post: PostId) -> int:
    """Return the creation time that a post id contains (ms since 1970)."""
    return int(ULID.from_str(post)) >> _RANDOM_BITS


def parse_content(text: str) -> str:
    """Validate the text of a post; return it NFC-normalized.

    Raises:
        BadRequest: the text is empty or only whitespace, or has control characters.
        TooLarge: the text is too long.
    """
    return parse_body(text, _CONTENT, "content")


def check_other(user: UserId, other: UserId) -> None:
    """Raise BadRequest if both are the same user."""
    if user == other:
        raise BadRequest("user: must be another user")
