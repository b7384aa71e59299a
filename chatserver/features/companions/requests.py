"""Requests about companions and their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.companion_ids import is_session_chat, parse_companion_id
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
    from chatserver.features.companions.container import CompanionContainer
    from chatserver.features.companions.service.sessions import Opened


def _get_companions(container: StorageContainer) -> CompanionContainer:
    from chatserver.features.companions.container import CompanionContainer

    return container.get(CompanionContainer)


def _build_reply(id_: int, opened: Opened) -> SessionReply:
    return SessionReply(id_, describe_session(opened.session), opened.info)


_SESSION = "/v1/companions/{companion:str}/session"
_SESSION_BYTES = CHAT_BYTES + 2 * MEMBER_BYTES


class OpenSession(msgspec.Struct, frozen=True):
    """An active session and its chat."""

    session: SessionInfo
    chat: frames.ChatInfo


def _build_start_route(path: str) -> Route:
    return Route(
        "POST",
        path,
        "chats:write",
        body="NewSession",
        result=OpenSession,
        status=201,
        creates=True,
    )


@request(StopResponse, runs_in="gateway")
async def stop_response(container: CoreContainer, user: UserId, frame: StopResponse) -> frames.Ok:
    """Stop the response of a companion that is in progress.

    Guarantees:
        Idempotent. The request remains in effect even if the worker crashes.
    """
    from chatserver.features.companions.hot.response_stream import ResponseStream

    chat = ChatId(frame.chat)
    await container.members.get_reader(chat, user)
    if is_session_chat(chat):
        await ResponseStream(container.hot).stop(chat)
    return frames.Ok(frame.id)


@request(JoinResponse, reply=ResponseText, runs_in="gateway")
async def join_response(
    container: CoreContainer, user: UserId, frame: JoinResponse
) -> ResponseText:
    """Return the text so far of a companion's current or last response.

    Guarantees:
        The reply has the text up to chunk `index`. Together with the later chunks (signals
        `ai.delta` with a higher `index`), it is the whole response.
    """
    from chatserver.features.companions.hot.response_stream import ResponseStream

    chat = ChatId(frame.chat)
    await container.members.get_reader(chat, user)
    stream = await ResponseStream(container.hot).find(chat) if is_session_chat(chat) else None
    if stream is None:
        return ResponseText(id=frame.id, chat=chat, turn="", seq=0, index=0, text="")
    return ResponseText(
        id=frame.id,
        chat=chat,
        turn=stream.response_id,
        seq=stream.seq,
        index=stream.index,
        text=stream.text,
        end=stream.end or msgspec.UNSET,
    )


@request(Companions, reply=CompanionsPage, cost=by_limit, is_needed_when_full=True)
async def list_companions(
    container: StorageContainer, user: UserId, frame: Companions
) -> CompanionsPage:
    """List companions, sorted by id."""
    after = None if frame.after is None else parse_companion_id(frame.after, "after")
    companions = _get_companions(container).companions
    page, next_after = await companions.list_page(after, frame.limit)
    infos = [describe_companion(companion) for companion in page]
    return CompanionsPage(frame.id, infos, next_after is not None, next_after)


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
    scope = list_name(user, companion)
    start: Mapping[str, str] | None = cursors.open(scope, frame.after, dict[str, str])
    page, next_start = await _get_companions(container).sessions.list_page(
        user, companion, start, frame.limit
    )
    sealed = cursors.sign(scope, next_start)
    infos = [describe_session(session) for session in page]
    return SessionsPage(frame.id, infos, sealed is not None, sealed)


@request(
    CreateSession,
    reply=SessionReply,
    cost=CHANGE,
    memory=_SESSION_BYTES,
    http=_build_start_route(_SESSION),
)
async def create_session(
    container: StorageContainer, user: UserId, frame: CreateSession
) -> SessionReply:
    """Start a session. If one is already active, the error (409) contains its chat."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.create(user, companion, Ref(frame.ref))
    return _build_reply(frame.id, opened)


@request(
    RenewSession,
    reply=SessionReply,
    cost=CHANGE,
    memory=_SESSION_BYTES,
    http=_build_start_route(f"{_SESSION}/renewal"),
)
async def renew_session(
    container: StorageContainer, user: UserId, frame: RenewSession
) -> SessionReply:
    """Atomically end the active session and start another."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.renew(user, companion, Ref(frame.ref))
    return _build_reply(frame.id, opened)


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
    return _build_reply(frame.id, opened)


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
