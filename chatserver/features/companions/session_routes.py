"""HTTP routes of companion sessions, equivalent to the frames `create_session` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.container import ApiContainer
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId, body_of, ref_of
from chatserver.api.security import Actor, user_or_key
from chatserver.domain.companion_ids import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companion_ids import parse_companion_id
from chatserver.domain.ids import ID_PATTERN, ChatId, Ref
from chatserver.features.companions.routes import PathCompanion
from chatserver.features.companions.sessions import Opened
from chatserver.features.companions.views import describe_session, list_name
from chatserver.protocol import frames

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")
CompanionQuery = Annotated[str | None, QueryParameter(pattern=COMPANION_PATTERN, required=False)]
ChatQuery = Annotated[str | None, QueryParameter(pattern=ID_PATTERN, required=False)]

if TYPE_CHECKING:  # the fields are those of the frames
    NewSession: TypeAlias = msgspec.Struct
    NewVersion: TypeAlias = msgspec.Struct
else:
    NewSession = body_of("NewSession", frames.CreateSession, "companion")
    NewVersion = body_of("NewVersion", frames.UpdateSession, "chat")


class OpenSession(msgspec.Struct, frozen=True):
    """An active session and its chat."""

    session: frames.SessionInfo
    chat: frames.ChatInfo


def companion_sessions_routes(parts: ApiContainer) -> list[HTTPRouteHandler]:
    """Return the routes of companion sessions."""
    return [*_active(parts), *_listed(parts)]


def _active(parts: ApiContainer) -> list[HTTPRouteHandler]:
    sessions = parts.companion_sessions

    @post("/v1/companions/{companion:str}/session", opt={"rule": WRITE, "creates": True})
    async def create_session(
        companion: PathCompanion,
        data: JSONBody[NewSession],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> OpenSession:
        """Start a session; 409 contains the chat of the active one."""
        ref = _ref(data, request)
        return _show(await sessions.create(actor, parse_companion_id(companion), ref))

    @get("/v1/companions/{companion:str}/session", opt={"rule": READ})
    async def get_session(companion: PathCompanion, actor: Actor) -> OpenSession:
        """Get the active session with a companion."""
        return _show(await sessions.get(actor, parse_companion_id(companion)))

    @post("/v1/companions/{companion:str}/session/renewal", opt={"rule": WRITE, "creates": True})
    async def renew_session(
        companion: PathCompanion,
        data: JSONBody[NewSession],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> OpenSession:
        """Atomically end the active session and start another."""
        ref = _ref(data, request)
        return _show(await sessions.renew(actor, parse_companion_id(companion), ref))

    @delete("/v1/companions/{companion:str}/session", status_code=200, opt={"rule": WRITE})
    async def delete_session(
        companion: PathCompanion, actor: Actor, chat: ChatQuery = None
    ) -> frames.SessionInfo:
        """End the active session; with `chat`, only if it is that one. Its messages remain."""
        which = None if chat is None else ChatId(chat)
        return describe_session(await sessions.delete(actor, parse_companion_id(companion), which))

    return [create_session, get_session, renew_session, delete_session]


def _listed(parts: ApiContainer) -> list[HTTPRouteHandler]:
    sessions = parts.companion_sessions

    @get("/v1/companion-sessions", opt={"rule": READ})
    async def list_sessions_with_companions(
        actor: Actor, companion: CompanionQuery = None, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.SessionInfo]:
        """List sessions: active ones first, then ended ones grouped by companion, by time.

        With `companion`, only the sessions with it: the active one, then ended ones, newest first.
        """
        whom = None if companion is None else parse_companion_id(companion)
        what = list_name(actor, whom)
        place = parts.cursors.open(what, cursor, dict[str, str])
        found, following = await sessions.list_page(actor, whom, place, limit)
        sealed = None if following is None else parts.cursors.seal(what, following)
        return Page([describe_session(each) for each in found], sealed)

    @put("/v1/companion-sessions/{chat:str}/version", opt={"rule": WRITE})
    async def update_session(
        chat: PathId, data: JSONBody[NewVersion], actor: Actor
    ) -> frames.SessionInfo:
        """Change the companion version that responds: `version`, or by default the newest."""
        version: int | None = getattr(data, "version", None)
        return describe_session(await sessions.update_version(actor, ChatId(chat), version))

    return [list_sessions_with_companions, update_session]


def _ref(data: msgspec.Struct, request: Request[Any, Any, Any]) -> Ref:
    return Ref(ref_of(getattr(data, "ref", None), request))


def _show(opened: Opened) -> OpenSession:
    return OpenSession(describe_session(opened.session), opened.info)
