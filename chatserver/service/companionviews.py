"""Companions and sessions as users see them, over HTTP and over the socket."""

from __future__ import annotations

from chatserver.domain.companions import Companion, CompanionId, CompanionSession
from chatserver.domain.ids import UserId
from chatserver.protocol import frames


def describe_companion(companion: Companion) -> frames.CompanionInfo:
    """Return what everybody may know of a companion: not what it is told to be."""
    return frames.CompanionInfo(companion.id, companion.name, companion.version)


def describe_session(session: CompanionSession) -> frames.SessionInfo:
    """Return what its user is told of a session."""
    return frames.SessionInfo(
        session.companion,
        session.chat,
        session.ai_version,
        session.create_time,
        session.delete_time,
    )


def list_name(user: UserId, companion: CompanionId | None) -> str:
    """Return what a cursor in a list of sessions is sealed for."""
    return f"sessions with {companion or 'any'} of {user}"
