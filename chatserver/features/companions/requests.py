"""Requests about companions and their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.companion_ids import parse_companion_id
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.features.companions.frames import (
    AiSignal,
    Companions,
    CompanionsPage,
    CreateSession,
    DeleteSession,
    GetSession,
    JoinResponse,
    RenewSession,
    ResponseText,
    SessionInfo,
    SessionReply,
    Sessions,
    SessionsPage,
    StopResponse,
    UpdateSession,
    describe_companion,
    describe_session,
    list_name,
)
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import CHAT_BYTES, MEMBER_BYTES
from chatserver.protocol.request_costs import CHANGE, by_limit
from chatserver.requests.operation import Route, ServerPush, request

if TYPE_CHECKING:
    from chatserver.container.core import CoreContainer
    from chatserver.container.storage import StorageContainer
    from chatserver.features.companions.commands import CompanionCommands
    from chatserver.features.companions.container import CompanionContainer


def _get_companions(container: StorageContainer) -> CompanionContainer:
    from chatserver.features.companions.container import CompanionContainer

    return container.get(CompanionContainer)


def _get_commands(container: CoreContainer) -> CompanionCommands:
    from chatserver.features.companions.gateway_container import make_companion_commands

    return container.get(make_companion_commands)


_SESSION = "/v1/companions/{companion:str}/session"
_SESSION_BYTES = CHAT_BYTES + 2 * MEMBER_BYTES


class OpenSession(msgspec.Struct, frozen=True):
    """An active session and its chat."""

    session: SessionInfo
    chat: frames.ChatInfo


@request(StopResponse, runs_in="gateway")
async def stop_response(container: CoreContainer, user: UserId, frame: StopResponse) -> frames.Ok:
    """Stop the response of a companion that is in progress."""
    return await _get_commands(container).stop(user, frame)


@request(JoinResponse, reply=ResponseText, runs_in="gateway")
async def join_response(
    container: CoreContainer, user: UserId, frame: JoinResponse
) -> ResponseText:
    """Return the current text of a companion's response."""
    return await _get_commands(container).join(user, frame)


@request(
    Companions,
    reply=CompanionsPage,
    cost=by_limit,
    is_needed_when_full=True,
)
async def list_companions(
    container: StorageContainer, user: UserId, frame: Companions
) -> CompanionsPage:
    """List companions, sorted by id."""
    after = None if frame.after is None else parse_companion_id(frame.after, "after")
    companions = _get_companions(container).companions
    page, following = await companions.list_page(after, frame.limit)
    infos = [describe_companion(companion) for companion in page]
    return CompanionsPage(frame.id, infos, following is not None, following)


@request(
    Sessions,
    reply=SessionsPage,
    cost=by_limit,
    is_needed_when_full=True,
    http=Route(
        "GET",
        "/v1/companion-sessions",
        "chats:read",
        name="list_sessions_with_companions",
        has_signed_cursor=True,
    ),
)
async def list_sessions(container: StorageContainer, user: UserId, frame: Sessions) -> SessionsPage:
    """List sessions: first active ones, then ended ones, sorted by companion and time.

    With `companion`, list only sessions with this companion: first the active one, then ended
    ones, newest first.
    """
    cursors = container.cursors
    companion = None if frame.companion is None else parse_companion_id(frame.companion)
    what = list_name(user, companion)
    place: Mapping[str, str] | None = cursors.open(what, frame.after, dict[str, str])
    page, following = await _get_companions(container).sessions.list_page(
        user, companion, place, frame.limit
    )
    sealed = cursors.sign(what, following)
    infos = [describe_session(session) for session in page]
    return SessionsPage(frame.id, infos, sealed is not None, sealed)


@request(
    CreateSession,
    reply=SessionReply,
    cost=CHANGE,
    memory=_SESSION_BYTES,
    http=Route(
        "POST",
        _SESSION,
        "chats:write",
        body="NewSession",
        result=OpenSession,
        status=201,
        creates=True,
    ),
)
async def create_session(
    container: StorageContainer, user: UserId, frame: CreateSession
) -> SessionReply:
    """Start a session. If one is already active, the error (409) contains its chat."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.create(user, companion, Ref(frame.ref))
    return SessionReply(frame.id, describe_session(opened.session), opened.info)


@request(
    RenewSession,
    reply=SessionReply,
    cost=CHANGE,
    memory=_SESSION_BYTES,
    http=Route(
        "POST",
        f"{_SESSION}/renewal",
        "chats:write",
        body="NewSession",
        result=OpenSession,
        status=201,
        creates=True,
    ),
)
async def renew_session(
    container: StorageContainer, user: UserId, frame: RenewSession
) -> SessionReply:
    """Atomically end the active session and start another."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.renew(user, companion, Ref(frame.ref))
    return SessionReply(frame.id, describe_session(opened.session), opened.info)


@request(
    GetSession,
    reply=SessionReply,
    is_needed_when_full=True,
    http=Route("GET", _SESSION, "chats:read", result=OpenSession, errors=(409,)),
)
async def get_session(container: StorageContainer, user: UserId, frame: GetSession) -> SessionReply:
    """Get the active session with a companion."""
    opened = await _get_companions(container).sessions.get(
        user, parse_companion_id(frame.companion)
    )
    return SessionReply(frame.id, describe_session(opened.session), opened.info)


@request(
    DeleteSession,
    reply=SessionReply,
    cost=CHANGE,
    http=Route("DELETE", _SESSION, "chats:write", result="session", errors=(409,)),
)
async def delete_session(
    container: StorageContainer, user: UserId, frame: DeleteSession
) -> SessionReply:
    """End the active session; with `chat`, only if it is in this chat. Messages remain.

    With `forget`, the companion also deletes its memories from this session.
    """
    companions = _get_companions(container)
    chat = None if frame.chat is None else ChatId(frame.chat)
    old = await companions.sessions.delete(user, parse_companion_id(frame.companion), chat)
    if frame.forget:
        await companions.memories.delete_session(old.user, old.companion, old.chat)
    return SessionReply(frame.id, describe_session(old))


@request(
    UpdateSession,
    reply=SessionReply,
    cost=CHANGE,
    http=Route(
        "PUT",
        "/v1/companion-sessions/{chat:str}/version",
        "chats:write",
        body="NewVersion",
        result="session",
        errors=(409,),
    ),
)
async def update_session(
    container: StorageContainer, user: UserId, frame: UpdateSession
) -> SessionReply:
    """Switch a session to another version of its companion; default: the newest."""
    moved = await _get_companions(container).sessions.update_version(
        user, ChatId(frame.chat), frame.version
    )
    return SessionReply(frame.id, describe_session(moved))


response_signal = ServerPush(AiSignal)
