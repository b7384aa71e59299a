"""AI companions and the sessions that users have with them. No I/O.

A companion is a member of its chats like a person: its id is a user id, in a corner of the names
that no account can take (`PREFIX`). What it is comes in versions: one is never changed, an update
is the next. A session is one stretch of talk of a user with a companion, and is an ordinary chat
of the two whose id is a ULID; a session knows by which version it is answered.

Invariant: a user has at most one session with a companion that is active, that is, not deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Final, Literal, NewType, Protocol

from ulid import ULID

from chatserver.domain.ids import ChatId, Ref, Seq, UserId, parse_id
from chatserver.errors import BadRequest

CompanionId = NewType("CompanionId", UserId)
Provider = Literal["bedrock", "openai", "scripted"]

PREFIX: Final = "ai-"
NAME_CHARS_MAX: Final = 64
PROMPT_CHARS_MAX: Final = 16_000
MODEL_CHARS_MAX: Final = 256  # an inference profile's ARN has some 150
CONTEXT_TOKENS_MIN: Final = 256
CONTEXT_TOKENS_MAX: Final = 1_000_000
ANSWER_TOKENS_MAX: Final = 64_000
VERSIONS_MAX: Final = 10_000

# As JSON Schema and msgspec read it. A bare `$` would let a trailing newline through in Python.
ID_PATTERN: Final = r"^ai-[a-z0-9][a-z0-9_-]{0,36}(?![\s\S])"
_TIME_CHARS = 10  # of a ULID
_ID = re.compile(r"ai-[a-z0-9][a-z0-9_-]{0,36}")
# Chats of other kinds have a dash in their ids (`chatserver.domain.ids`).
_SESSION_CHAT = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


NO_COMPANION: Final = "companion: there is no such companion"
NO_SESSION: Final = "session: there is none with this companion"
NO_SUCH_CHAT: Final = "chat: is no session of yours"
OVER: Final = "chat: this session is no longer active"
CHANGED: Final = "session: another request changed it at the same moment"


@dataclasses.dataclass(frozen=True, slots=True)
class Companion:
    """A version of a companion. All but `is_deleted` is the same for ever.

    `context_tokens_max` bounds what a model is given for one answer, the prompt included;
    `answer_tokens_max` what it may say. `is_deleted` is of the companion, so of all its versions.
    """

    id: CompanionId
    version: int  # 1, 2, 3 …
    name: str
    prompt: str  # what the model is told before anything else
    provider: Provider
    model: str
    context_tokens_max: int
    answer_tokens_max: int
    created_ms: int  # milliseconds since 1970, of this version
    is_deleted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """What the next version has instead; None: as before."""

    name: str | None = None
    prompt: str | None = None
    provider: Provider | None = None
    model: str | None = None
    context_tokens_max: int | None = None
    answer_tokens_max: int | None = None

    def apply(self, before: Companion, now_ms: int) -> Companion:
        """Return the version after `before`."""
        given = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(before, **given, version=before.version + 1, created_ms=now_ms)


@dataclasses.dataclass(frozen=True, slots=True)
class CompanionSession:
    """A session of a user with a companion. Times are milliseconds since 1970."""

    user: UserId
    companion: CompanionId
    chat: ChatId
    ai_version: int
    create_time: int
    delete_time: int | None = None  # None: it is the active one

    @property
    def is_active(self) -> bool:
        """Whether the user may write and the companion answers."""
        return self.delete_time is None


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """What a companion remembers of a session: a summary of the messages `first` to `upto`."""

    first: Seq
    upto: Seq
    text: str
    rev: int  # 1, 2, 3 …: rises with each summary


class CompanionBook(Protocol):
    """What the assistant asks about companions and sessions."""

    async def get_companion(self, companion: CompanionId, version: int) -> Companion:
        """Return a version of a companion, deleted or not. Raises NotFound."""

    async def find_session_by_chat(self, chat: ChatId) -> CompanionSession | None:
        """Return the session that a chat is, active or old; None: the chat is none."""


def parse_companion_id(text: str, field: str = "companion") -> CompanionId:
    """Return `text` if it is the id of a companion. Raises BadRequest."""
    if _ID.fullmatch(text) is None:
        raise BadRequest(
            f"{field}: must be {PREFIX} and 1 to 37 characters of a-z 0-9 _ -, "
            "a letter or digit first"
        )
    return CompanionId(UserId(text))


def is_companion(user: str) -> bool:
    """Say whether an id is in the corner of the names that companions have for themselves."""
    return user.startswith(PREFIX)


def parse_person_id(text: str, field: str) -> UserId:
    """Return `text` if it is an id that a person may have. Raises BadRequest."""
    user = UserId(parse_id(text, field))
    if is_companion(user):
        raise BadRequest(f"{field}: must not begin with {PREFIX}: such names are for companions")
    return user


def session_chat_id(user: UserId, companion: CompanionId, ref: Ref, now: float) -> ChatId:
    """Return the id of the chat of a session that begins `now` (s): a ULID.

    In place of the random part it has a digest of who asked for what, under which reference: a
    repeat at another time is known by it (`is_same_request`).
    """
    asked = f"{user}#{companion}#{ref}".encode()  # '#' is in no id
    digest = hashlib.blake2b(asked, digest_size=10, person=b"session").digest()
    return ChatId(str(ULID.from_bytes(int(now * 1000).to_bytes(6, "big") + digest)))


def is_same_request(a: ChatId, b: ChatId) -> bool:
    """Say whether two ids of sessions' chats were made of one reference."""
    return a[_TIME_CHARS:] == b[_TIME_CHARS:]


def describe_active(active: CompanionSession) -> str:
    """Return what somebody is told who wants to begin a session while one is active."""
    return f"session: there is an active one with this companion: chat {active.chat}"


def is_session_chat(chat: str) -> bool:
    """Say whether a chat's id is one that sessions have. Whether there is one it cannot say."""
    return _SESSION_CHAT.fullmatch(chat) is not None
