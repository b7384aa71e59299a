"""Requests about companions and their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chatserver.auth.page_cursors import Cursors
from chatserver.domain.companion_ids import parse_companion_id
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.features.companions.frames import describe_companion, describe_session, list_name
from chatserver.protocol import frames
from chatserver.protocol.request_costs import CHANGE, by_limit
from chatserver.requests.operation import request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer
    from chatserver.features.companions.container import CompanionContainer


def _get_companions(container: StorageContainer) -> CompanionContainer:
    from chatserver.features.companions.container import CompanionContainer

    return container.get(CompanionContainer)


@request(frames.Companions, cost=by_limit, is_needed_when_full=True)
async def list_companions(
    container: StorageContainer, user: UserId, frame: frames.Companions
) -> frames.CompanionsPage:
    """Return one page of the available companions, sorted by id."""
    after = None if frame.after is None else parse_companion_id(frame.after, "after")
    companions = _get_companions(container).companions
    page, following = await companions.list_page(after, frame.limit)
    infos = [describe_companion(companion) for companion in page]
    return frames.CompanionsPage(frame.id, infos, following is not None, following)


@request(frames.Sessions, cost=by_limit, is_needed_when_full=True)
async def list_sessions(
    container: StorageContainer, user: UserId, frame: frames.Sessions
) -> frames.SessionsPage:
    """Return one page of the user's sessions."""
    cursors = Cursors(container.settings.auth.secret)
    companion = None if frame.companion is None else parse_companion_id(frame.companion)
    what = list_name(user, companion)
    place: Mapping[str, str] | None = cursors.open(what, frame.after, dict[str, str])
    page, following = await _get_companions(container).sessions.list_page(
        user, companion, place, frame.limit
    )
    sealed = cursors.sign(what, following)
    infos = [describe_session(session) for session in page]
    return frames.SessionsPage(frame.id, infos, sealed is not None, sealed)


@request(frames.CreateSession, cost=CHANGE)
async def create_session(
    container: StorageContainer, user: UserId, frame: frames.CreateSession
) -> frames.Ok:
    """Start a session with a companion."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.create(user, companion, Ref(frame.ref))
    return frames.Ok(frame.id, opened.info, describe_session(opened.session))


@request(frames.RenewSession, cost=CHANGE)
async def renew_session(
    container: StorageContainer, user: UserId, frame: frames.RenewSession
) -> frames.Ok:
    """Start a session that replaces the active one."""
    companion = parse_companion_id(frame.companion)
    opened = await _get_companions(container).sessions.renew(user, companion, Ref(frame.ref))
    return frames.Ok(frame.id, opened.info, describe_session(opened.session))


@request(frames.GetSession, is_needed_when_full=True)
async def get_session(
    container: StorageContainer, user: UserId, frame: frames.GetSession
) -> frames.Ok:
    """Return the active session with a companion. NotFound: there is none."""
    opened = await _get_companions(container).sessions.get(
        user, parse_companion_id(frame.companion)
    )
    return frames.Ok(frame.id, opened.info, describe_session(opened.session))


@request(frames.DeleteSession, cost=CHANGE)
async def delete_session(
    container: StorageContainer, user: UserId, frame: frames.DeleteSession
) -> frames.Ok:
    """End a session; with `forget`, also delete the companion's memory of it."""
    companions = _get_companions(container)
    chat = None if frame.chat is None else ChatId(frame.chat)
    old = await companions.sessions.delete(user, parse_companion_id(frame.companion), chat)
    if frame.forget:
        await companions.memories.delete_session(old.user, old.companion, old.chat)
    return frames.Ok(frame.id, None, describe_session(old))


@request(frames.UpdateSession, cost=CHANGE)
async def update_session(
    container: StorageContainer, user: UserId, frame: frames.UpdateSession
) -> frames.Ok:
    """Move a session to another version of the companion."""
    moved = await _get_companions(container).sessions.update_version(
        user, ChatId(frame.chat), frame.version
    )
    return frames.Ok(frame.id, None, describe_session(moved))
