"""Messages: read them, send, change and mark them, as the frames of the same names do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import msgspec
from litestar import Request, Response, delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.bodies import PathId, PathSeq, RefQuery, body_of, frame_of, ref_of
from chatserver.api.paging import Limit
from chatserver.api.parts import ApiParts
from chatserver.api.security import Actor, user_or_key
from chatserver.api.sending import send_message
from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.protocol.memory_costs import CHANGE_BYTES, MESSAGE_BYTES
from chatserver.service.screening import screen_edit

READ, WRITE = user_or_key("chats:read"), user_or_key("messages:write")
SEND = {"rule": WRITE, "creates": True, "limit": "sends", "memory": MESSAGE_BYTES}
CHANGE = {"rule": WRITE, "memory": CHANGE_BYTES}

if TYPE_CHECKING:  # which fields they have, the frames say
    NewMessage: TypeAlias = msgspec.Struct
    NewText: TypeAlias = msgspec.Struct
    NewReaction: TypeAlias = msgspec.Struct
    NewMarks: TypeAlias = msgspec.Struct
else:
    NewMessage = body_of("NewMessage", frames.Send, "chat")
    NewText = body_of("NewText", frames.Edit, "chat", "seq")
    NewReaction = body_of("NewReaction", frames.React, "chat", "seq")
    NewMarks = body_of("NewMarks", frames.Mark, "chat")

Place = Annotated[
    int | None, QueryParameter(ge=0, le=frames.INT_MAX, required=False, description="a chat seq")
]
Reach = Annotated[Literal["all", "me"], QueryParameter(name="for", required=False)]


class History(msgspec.Struct, frozen=True):
    """Messages in rising seq, without a hole; fields as in the `page` that answers `history`."""

    messages: list[frames.Message]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int
    marks: list[frames.Marks]


class Placed(msgspec.Struct, frozen=True):
    """Where a message or a change of one stands; fields as in `ack`."""

    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


def messages_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes of messages."""
    return [*_reading(parts), *_writing(parts), *_changing(parts)]


def _reading(parts: ApiParts) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/messages", opt={"rule": READ})
    async def list_messages(
        chat: PathId,
        actor: Actor,
        before: Place = None,
        after: Place = None,
        limit: Limit = 50,
    ) -> History:
        """Read messages before or after a seq of the chat; without either, the newest."""
        frame = frames.History(0, chat, before, after, limit)
        page = await parts.history.get_page(actor, frame)
        is_newest = before is None and after is None
        marks = await parts.chats.list_marks(actor, ChatId(chat)) if is_newest else []
        # They are JSON already, of this very type: not to be made objects of and back.
        messages = cast("list[frames.Message]", [msgspec.Raw(each) for each in page.messages])
        return History(messages, page.tier, page.has_more, page.stored, marks)

    @put("/v1/chats/{chat:str}/marks", status_code=204, opt={"rule": WRITE})
    async def mark(
        chat: PathId, data: JSONBody[NewMarks], actor: Actor, request: Request[Any, Any, Any]
    ) -> None:
        """Move the user's own marks forward; they never move back."""
        frame = frame_of(frames.Mark, data, request, chat=chat)
        if frame.read is None and frame.received is None:
            raise BadRequest("read, received: give at least one")
        await parts.chats.mark(actor, frame)

    return [list_messages, mark]


def _writing(parts: ApiParts) -> list[HTTPRouteHandler]:
    @post("/v1/chats/{chat:str}/messages", opt=SEND)
    async def send(
        chat: PathId, data: JSONBody[NewMessage], actor: Actor, request: Request[Any, Any, Any]
    ) -> Response[Placed]:
        """Send a message; the same `ref` again answers 200 with the same place."""
        ack = await send_message(parts, actor, frame_of(frames.Send, data, request, chat=chat))
        return Response(_placed(ack), status_code=200 if ack.dup else 201)

    return [send]


def _changing(parts: ApiParts) -> list[HTTPRouteHandler]:
    @patch("/v1/chats/{chat:str}/messages/{seq:int}", opt=CHANGE)
    async def edit(
        chat: PathId,
        seq: PathSeq,
        data: JSONBody[NewText],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> Placed:
        """Give a message of the user's own another text."""
        frame = frame_of(frames.Edit, data, request, chat=chat, seq=seq)
        if parts.screening is not None:
            frame = await screen_edit(parts.screening, actor, frame)
        return _placed(await parts.amending.change(actor, frame))

    @put("/v1/chats/{chat:str}/messages/{seq:int}/reaction", opt=CHANGE)
    async def react(
        chat: PathId,
        seq: PathSeq,
        data: JSONBody[NewReaction],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> Placed:
        """Set the user's one reaction to a message; an empty one takes it away."""
        frame = frame_of(frames.React, data, request, chat=chat, seq=seq)
        return _placed(await parts.amending.change(actor, frame))

    @delete("/v1/chats/{chat:str}/messages/{seq:int}", status_code=200, opt=CHANGE)
    async def delete_message(
        chat: PathId,
        seq: PathSeq,
        actor: Actor,
        request: Request[Any, Any, Any],
        reach: Reach = "all",
        ref: RefQuery = None,
    ) -> Placed:
        """Take a message away: from everybody, or from the user's own sight alone."""
        frame = frames.Delete(0, chat, seq, ref_of(ref, request), reach)
        return _placed(await parts.amending.change(actor, frame))

    return [edit, react, delete_message]


def _placed(ack: frames.Ack) -> Placed:
    return Placed(ack.ref, ack.mid, ack.seq, ack.ts, ack.dup, ack.durability)
