"""Sessions with companions: what the frames `create_session`, `renew_session` and so on do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.bodies import PathId, body_of, ref_of
from chatserver.api.companions import PathCompanion
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.parts import ApiParts
from chatserver.api.security import Actor, user_or_key
from chatserver.domain.companions import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companions import parse_companion_id
from chatserver.domain.ids import ID_PATTERN, ChatId, Ref
from chatserver.protocol import frames
from chatserver.service.companionsessions import Opened
from chatserver.service.companionviews import describe_session, list_name

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")
CompanionQuery = Annotated[str | None, QueryParameter(pattern=COMPANION_PATTERN, required=False)]
ChatQuery = Annotated[str | None, QueryParameter(pattern=ID_PATTERN, required=False)]

if TYPE_CHECKING:  # which fields they have, the frames say
    NewSession: TypeAlias = msgspec.Struct
    NewVersion: TypeAlias = msgspec.Struct
else:
    NewSession = body_of("NewSession", frames.CreateSession, "companion")
    NewVersion = body_of("NewVersion", frames.UpdateSession, "chat")


class OpenSession(msgspec.Struct, frozen=True):
    """A session that is active, and its chat."""

    session: frames.SessionInfo
    chat: frames.ChatInfo


def companion_sessions_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes of sessions with companions."""
    return [*_active(parts), *_listed(parts)]


def _active(parts: ApiParts) -> list[HTTPRouteHandler]:
    sessions = parts.companion_sessions

    @post("/v1/companions/{companion:str}/session", opt={"rule": WRITE, "creates": True})
    async def create_session(
        companion: PathCompanion,
        data: JSONBody[NewSession],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> OpenSession:
        """Begin a session; 409 names the chat of one that is active."""
        ref = _ref(data, request)
        return _show(await sessions.create(actor, parse_companion_id(companion), ref))

    @get("/v1/companions/{companion:str}/session", opt={"rule": READ})
    async def get_session(companion: PathCompanion, actor: Actor) -> OpenSession:
        """Tell of the active session with a companion."""
        return _show(await sessions.get(actor, parse_companion_id(companion)))

    @post("/v1/companions/{companion:str}/session/renewal", opt={"rule": WRITE, "creates": True})
    async def renew_session(
        companion: PathCompanion,
        data: JSONBody[NewSession],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> OpenSession:
        """End the active session and begin another, in one step."""
        ref = _ref(data, request)
        return _show(await sessions.renew(actor, parse_companion_id(companion), ref))

    @delete("/v1/companions/{companion:str}/session", status_code=200, opt={"rule": WRITE})
    async def delete_session(
        companion: PathCompanion, actor: Actor, chat: ChatQuery = None
    ) -> frames.SessionInfo:
        """End the active session; with `chat`, only if it is that one. What was said stays."""
        which = None if chat is None else ChatId(chat)
        return describe_session(await sessions.delete(actor, parse_companion_id(companion), which))

    return [create_session, get_session, renew_session, delete_session]


def _listed(parts: ApiParts) -> list[HTTPRouteHandler]:
    sessions = parts.companion_sessions

    @get("/v1/companion-sessions", opt={"rule": READ})
    async def list_sessions_with_companions(
        actor: Actor, companion: CompanionQuery = None, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.SessionInfo]:
        """List sessions: active ones first, then the old ones of each companion, by time.

        With `companion`, those with one: the active one, then the old ones, the newest first.
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
        """Let another version of the companion answer: the newest, unless `version` says which."""
        version: int | None = getattr(data, "version", None)
        return describe_session(await sessions.update_version(actor, ChatId(chat), version))

    return [list_sessions_with_companions, update_session]


def _ref(data: msgspec.Struct, request: Request[Any, Any, Any]) -> Ref:
    return Ref(ref_of(getattr(data, "ref", None), request))


def _show(opened: Opened) -> OpenSession:
    return OpenSession(describe_session(opened.session), opened.info)
