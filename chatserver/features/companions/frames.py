"""Frames of companions and their sessions, and their contents from stored items."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from chatserver.domain.companion_ids import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companion_ids import VERSIONS_MAX, CompanionId
from chatserver.domain.ids import UserId
from chatserver.features.companions.model import Companion, CompanionSession
from chatserver.protocol.frames import (
    CURSOR_CHARS_MAX,
    ChatInfo,
    ClientFrame,
    Id,
    Limit,
    RequestId,
    ServerFrame,
)

CompanionIdField = Annotated[str, Meta(pattern=COMPANION_PATTERN)]


class StopResponse(ClientFrame, tag="stop", frozen=True):
    """Stops a companion's running response; the text so far becomes the message."""

    id: RequestId
    chat: Id


class JoinResponse(ClientFrame, tag="join_turn", frozen=True):
    """Requests the text so far of a companion's running response."""

    id: RequestId
    chat: Id


class Companions(ClientFrame, tag="companions", frozen=True):
    """Lists the AI companions, sorted by id; `after` is the `next` of the previous page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class CreateSession(ClientFrame, tag="create_session", frozen=True):
    """Starts a session with a companion. If one is already active, `conflict` names its chat.

    A retry with the same `ref` returns the same session while it is active.
    """

    id: RequestId
    companion: CompanionIdField
    ref: Id


class GetSession(ClientFrame, tag="get_session", frozen=True):
    """Requests the active session with a companion."""

    id: RequestId
    companion: CompanionIdField


class RenewSession(ClientFrame, tag="renew_session", frozen=True):
    """Ends the active session with a companion and starts a new one, atomically."""

    id: RequestId
    companion: CompanionIdField
    ref: Id


class DeleteSession(ClientFrame, tag="delete_session", frozen=True):
    """Ends the active session with a companion. With `chat`, ends it only if it is in that chat.

    The messages remain readable. With `forget`, the companion also forgets what it remembers from
    this session.
    """

    id: RequestId
    companion: CompanionIdField
    chat: Id | None = None
    forget: bool = False


class UpdateSession(ClientFrame, tag="update_session", frozen=True):
    """Changes the companion version that responds in a session, by default to the newest."""

    id: RequestId
    chat: Id
    version: Annotated[int, Meta(ge=1, le=VERSIONS_MAX)] | None = None


class Sessions(ClientFrame, tag="sessions", frozen=True):
    """Lists the user's companion sessions: active ones, then ended ones by companion and time.

    With `companion`, lists only the sessions with that companion: the active one, then the ended
    ones, newest first. `after` is the `next` of the previous page.
    """

    id: RequestId
    companion: CompanionIdField | None = None
    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX)] | None = None
    limit: Limit = 50


class CompanionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An AI companion. `id` is its user id in chats. `version` is its newest version."""

    id: str
    name: str
    version: int


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's session with a companion. Version `ai_version` of the companion responds.

    Times are Unix milliseconds. A session with a `delete_time` has ended, and its chat is
    read-only.
    """

    companion: str
    chat: str
    ai_version: int
    create_time: int
    delete_time: int | None = None


class AiSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """Part `index` of a companion's streamed response to the message at `seq`.

    `turn` identifies the response; a new `turn` for the same `seq` means that the response has
    restarted. Index 0 has no text. A part with `tool` has no text either; the model is using that
    tool. The last part has `end`; after it, the message arrives as an event.
    """

    kind: Literal["ai.delta"]
    chat: str
    from_: str = msgspec.field(name="from")
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET


class ResponseText(ServerFrame, tag="turn", frozen=True, omit_defaults=False):
    """Response to `join_turn`. `text` covers the parts up to `index`; later parts are signals.

    `turn` is empty if there is no running or recently ended response.
    """

    id: int
    chat: str
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET


class CompanionsPage(ServerFrame, tag="page", frozen=True):
    """Response to `companions`."""

    id: int
    companions: list[CompanionInfo]
    more: bool
    next: str | None = None


class SessionsPage(ServerFrame, tag="page", frozen=True):
    """Response to `sessions`. `next` is the `after` for the next page."""

    id: int
    sessions: list[SessionInfo]
    more: bool
    next: str | None = None


class SessionReply(ServerFrame, tag="ok", frozen=True):
    """Response to a request about a session; `chat` only if the session is active."""

    id: int
    session: SessionInfo
    chat: ChatInfo | None = None


def describe_companion(companion: Companion) -> CompanionInfo:
    """Return the public fields of a companion; the prompt is not one of them."""
    return CompanionInfo(companion.id, companion.name, companion.version)


def describe_session(session: CompanionSession) -> SessionInfo:
    """Return the fields of a session that its user can see."""
    return msgspec.convert(session, SessionInfo, from_attributes=True)


def list_name(user: UserId, companion: CompanionId | None) -> str:
    """Return a name for a list of sessions. The list's page cursors are signed with this name.

    So a cursor that was issued for another list is rejected.
    """
    return f"sessions with {companion or 'any'} of {user}"
