"""Companion and companion-session requests of clients, answered by `workers.rpc`."""

from __future__ import annotations

import msgspec

from chatserver.domain.ids import UserId
from chatserver.hot.bus import rpc
from chatserver.hot.bus.rpc_client import WarmCalls
from chatserver.protocol import frames


async def ask_of_companions(
    warm: WarmCalls, user: UserId, frame: frames.AnySessionRequest
) -> msgspec.Struct:
    """Return the response to a companion request.

    Raises:
        ChatError: the request failed; the error is the response.
    """
    operation: rpc.BeginSession | rpc.GetSession | rpc.EndSession | rpc.MoveSession
    match frame:
        case frames.Companions():
            companions, following = await warm.list_companions(frame.after, frame.limit)
            return frames.CompanionsPage(frame.id, companions, following is not None, following)
        case frames.Sessions():
            sessions, following = await warm.list_sessions(
                user, frame.companion, frame.after, frame.limit
            )
            return frames.SessionsPage(frame.id, sessions, following is not None, following)
        case frames.CreateSession():
            operation = rpc.BeginSession(user, frame.companion, frame.ref)
        case frames.RenewSession():
            operation = rpc.BeginSession(user, frame.companion, frame.ref, is_renewal=True)
        case frames.GetSession():
            operation = rpc.GetSession(user, frame.companion)
        case frames.DeleteSession():
            operation = rpc.EndSession(user, frame.companion, frame.chat)
        case frames.UpdateSession():
            operation = rpc.MoveSession(user, frame.chat, frame.version)
    opened = await warm.ask_session(operation)
    return frames.Ok(frame.id, opened.chat, opened.session)
