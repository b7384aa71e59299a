"""Public views of companions and sessions, shared by HTTP and WebSocket."""

from __future__ import annotations

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import UserId
from chatserver.features.companions.model import Companion, CompanionSession
from chatserver.protocol import frames


def describe_companion(companion: Companion) -> frames.CompanionInfo:
    """Return the public fields of a companion; the prompt is not one of them."""
    return frames.CompanionInfo(companion.id, companion.name, companion.version)


def describe_session(session: CompanionSession) -> frames.SessionInfo:
    """Return the fields of a session that its user can see."""
    return frames.SessionInfo(
        session.companion,
        session.chat,
        session.ai_version,
        session.create_time,
        session.delete_time,
    )


def list_name(user: UserId, companion: CompanionId | None) -> str:
    """Return a name for a list of sessions. The list's page cursors are signed with this name.

    So a cursor that was issued for another list is rejected.
    """
    return f"sessions with {companion or 'any'} of {user}"
