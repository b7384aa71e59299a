"""Message routes: list, send, edit, react, delete and mark as read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import msgspec
from litestar import Request, Response, delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, QueryParameter

from chatserver.api.message_sending import send_message
from chatserver.api.paging import Limit
from chatserver.api.request_bodies import (
    PathId,
    PathSeq,
    RefQuery,
    build_body_type,
    build_frame,
    get_ref,
)
from chatserver.api.security import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import CHANGE_BYTES, MESSAGE_BYTES

READ, WRITE = user_or_key("chats:read"), user_or_key("messages:write")
SEND = {"rule": WRITE, "creates": True, "limit": "sends", "memory": MESSAGE_BYTES}
CHANGE = {"rule": WRITE, "memory": CHANGE_BYTES, "errors": (409, 413)}

if TYPE_CHECKING:  # at runtime, these types are built from frame types
    NewMessage: TypeAlias = msgspec.Struct
    NewText: TypeAlias = msgspec.Struct
    NewReaction: TypeAlias = msgspec.Struct
    NewMarks: TypeAlias = msgspec.Struct
else:
    NewMessage = build_body_type("NewMessage", frames.Send, "chat")
    NewText = build_body_type("NewText", frames.Edit, "chat", "seq")
    NewReaction = build_body_type("NewReaction", frames.React, "chat", "seq")
    NewMarks = build_body_type("NewMarks", frames.Mark, "chat")

Place = Annotated[
    int | None, QueryParameter(ge=0, le=frames.INT_MAX, required=False, description="a chat seq")
]
Reach = Annotated[Literal["all", "me"], QueryParameter(name="for", required=False)]


class History(msgspec.Struct, frozen=True):
    """Messages in ascending `seq`, without gaps; fields as in the `page` frame."""

    messages: list[frames.Message]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int
    marks: list[frames.Marks]


class Placed(msgspec.Struct, frozen=True):
    """The chat seq and timestamp of a message or of a change; fields as in the `ack` frame."""

    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


def build_messages_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_read_routes(container),
        *_build_send_routes(container),
        *_build_change_routes(container),
    ]


def _build_read_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/messages", opt={"rule": READ})
    async def list_messages(
        chat: PathId,
        actor: Actor,
        before: Place = None,
        after: Place = None,
        limit: Limit = 50,
    ) -> History:
        """List the messages before or after a chat `seq`; by default, the newest messages."""
        frame = frames.History(0, chat, before, after, limit)
        page = await container.history.get_page(actor, frame)
        is_newest = before is None and after is None
        marks = await container.read_marks.list_marks(actor, ChatId(chat)) if is_newest else []
        # `Raw`: the messages are already JSON and must not be encoded again.
        messages = cast("list[frames.Message]", [msgspec.Raw(message) for message in page.messages])
        return History(messages, page.tier, page.has_more, page.stored, marks)

    @put("/v1/chats/{chat:str}/marks", status_code=204, opt={"rule": WRITE})
    async def mark(
        chat: PathId, data: JSONBody[NewMarks], actor: Actor, request: Request[Any, Any, Any]
    ) -> None:
        """Mark messages as read or received, up to a `seq`. Marks never move back."""
        frame = build_frame(frames.Mark, data, request, chat=chat)
        if frame.read is None and frame.received is None:
            raise BadRequest("read, received: at least one is required")
        await container.read_marks.move(actor, frame)

    return [list_messages, mark]


def _build_send_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    repeated = ResponseSpec(
        Placed, generate_examples=False, description="The message was already sent with this `ref`"
    )

    @post("/v1/chats/{chat:str}/messages", opt=SEND, responses={200: repeated})
    async def send(
        chat: PathId, data: JSONBody[NewMessage], actor: Actor, request: Request[Any, Any, Any]
    ) -> Response[Placed]:
        """Send a message. A retry with the same `ref` returns 200 and the original `seq`."""
        ack = await send_message(
            container, actor, build_frame(frames.Send, data, request, chat=chat)
        )
        return Response(_make_placed(ack), status_code=200 if ack.dup else 201)

    return [send]


def _build_change_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @patch("/v1/chats/{chat:str}/messages/{seq:int}", opt=CHANGE)
    async def edit(
        chat: PathId,
        seq: PathSeq,
        data: JSONBody[NewText],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> Placed:
        """Replace the text of one of the user's own messages."""
        frame = build_frame(frames.Edit, data, request, chat=chat, seq=seq)
        if container.check_edit is not None:
            frame = await container.check_edit(actor, frame)
        return _make_placed(await container.message_change_service.change(actor, frame))

    @put("/v1/chats/{chat:str}/messages/{seq:int}/reaction", opt=CHANGE)
    async def react(
        chat: PathId,
        seq: PathSeq,
        data: JSONBody[NewReaction],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> Placed:
        """Set the user's reaction to a message; an empty reaction removes it."""
        frame = build_frame(frames.React, data, request, chat=chat, seq=seq)
        return _make_placed(await container.message_change_service.change(actor, frame))

    @delete("/v1/chats/{chat:str}/messages/{seq:int}", status_code=200, opt=CHANGE)
    async def delete_message(
        chat: PathId,
        seq: PathSeq,
        actor: Actor,
        request: Request[Any, Any, Any],
        reach: Reach = "all",
        ref: RefQuery = None,
    ) -> Placed:
        """Delete a message for everyone, or only for the user."""
        frame = frames.Delete(0, chat, seq, get_ref(ref, request), reach)
        return _make_placed(await container.message_change_service.change(actor, frame))

    return [edit, react, delete_message]


def _make_placed(ack: frames.Ack) -> Placed:
    return Placed(ack.ref, ack.mid, ack.seq, ack.ts, ack.dup, ack.durability)
