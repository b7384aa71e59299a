"""AI companions and the sessions that users have with them. No I/O.

A companion is a chat member like a user: its id is a user id with the reserved prefix `ai-`, which
no account can have. Companions are versioned: a version is immutable, and an update creates the
next one. A session is one conversation between a user and a companion. It is an ordinary chat
between the two, with a ULID as its id. Each session records which version of the companion responds
in it.

Invariant: a user has at most one active (not deleted) session with a companion.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final, Literal

from ulid import ULID

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.features.companions.companion_options import NO_OPTIONS, CompanionOptions

Provider = Literal["bedrock", "openai", "scripted"]

NAME_CHARS_MAX: Final = 64
PROMPT_CHARS_MAX: Final = 16_000
MODEL_CHARS_MAX: Final = 256  # the ARN of a Bedrock inference profile has about 150 characters
CONTEXT_TOKENS_MIN: Final = 256
CONTEXT_TOKENS_MAX: Final = 1_000_000
ANSWER_TOKENS_MAX: Final = 64_000

_TIME_CHARS = 10  # number of timestamp characters at the start of a ULID

NO_COMPANION: Final = "companion: no such companion"
NO_SESSION: Final = "session: you have no session with this companion"
NO_SUCH_CHAT: Final = "chat: is not one of your companion sessions"
SESSION_ENDED: Final = "chat: this session has ended"
SESSION_CHANGED: Final = "session: changed by a concurrent request; try again"


@dataclasses.dataclass(frozen=True, slots=True)
class Companion:
    """A version of a companion. Every field except `is_deleted` is immutable.

    `context_tokens_max` limits a model request together with its response. `answer_tokens_max`
    limits the response. `is_deleted` is a property of the companion and therefore the same in all
    of its versions.
    """

    id: CompanionId
    version: int  # 1, 2, 3 …
    name: str
    prompt: str  # system prompt
    provider: Provider
    model: str
    context_tokens_max: int
    answer_tokens_max: int
    created_ms: int  # creation time of this version, in milliseconds since 1970
    is_deleted: bool = False
    options: CompanionOptions = NO_OPTIONS


@dataclasses.dataclass(frozen=True, slots=True)
class VersionChanges:
    """Fields to change in the next version; None keeps the previous value."""

    name: str | None = None
    prompt: str | None = None
    provider: Provider | None = None
    model: str | None = None
    context_tokens_max: int | None = None
    answer_tokens_max: int | None = None
    options: CompanionOptions | None = None

    def apply(self, before: Companion, now_ms: int) -> Companion:
        """Return the version that follows `before`."""
        replaced = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(
            before, **replaced, version=before.version + 1, created_ms=now_ms
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CompanionSession:
    """A user's session with a companion. Times are in milliseconds since 1970."""

    user: UserId
    companion: CompanionId
    chat: ChatId
    ai_version: int
    create_time: int
    delete_time: int | None = None  # when the session ended; None if it is active

    @property
    def is_active(self) -> bool:
        """True if the user may write and the companion responds."""
        return self.delete_time is None


@dataclasses.dataclass(frozen=True, slots=True)
class SessionSummary:
    """A stored summary of a session's messages from seq `first` to seq `upto`.

    It expires together with the first of these messages: `expires_at` (seconds since 1970).
    """

    first: Seq
    upto: Seq
    text: str
    rev: int  # number of this version of the summary: 1, 2, 3 …
    expires_at: int | None = None


def session_chat_id(user: UserId, companion: CompanionId, ref: Ref, now: float) -> ChatId:
    """Return the chat id (a ULID) of a session that starts at `now` (s).

    In place of the ULID's random part, it has a digest of the user, the companion and `ref`.
    `is_same_request` uses it to detect a retry.
    """
    seed = f"{user}#{companion}#{ref}".encode()  # no id contains '#'
    digest = hashlib.blake2b(seed, digest_size=10, person=b"session").digest()
    return ChatId(str(ULID.from_bytes(int(now * 1000).to_bytes(6, "big") + digest)))


def is_same_request(a: ChatId, b: ChatId) -> bool:
    """Return whether two session chat ids come from requests with the same `ref`."""
    return a[_TIME_CHARS:] == b[_TIME_CHARS:]


def describe_active(active: CompanionSession) -> str:
    """Return the error message for starting a session while another one is active."""
    return f"session: you already have an active session with this companion: chat {active.chat}"
