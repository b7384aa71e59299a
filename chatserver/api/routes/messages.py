"""Route for sending messages; `chatserver.requests.messages` declares those for changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from litestar import Request, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.message_sending import send_message
from chatserver.api.request_bodies import PathId, build_body_type, build_frame
from chatserver.container.storage import StorageContainer
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import MESSAGE_BYTES
from chatserver.requests.messages import Placed

WRITE = user_or_key("messages:write")
SEND = {"rule": WRITE, "creates": True, "limit": "sends", "memory": MESSAGE_BYTES}

if TYPE_CHECKING:  # at runtime, this type is built from the frame type
    NewMessage: TypeAlias = msgspec.Struct
else:
    NewMessage = build_body_type("NewMessage", frames.Send, "chat")


def build_messages_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
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
        placed = Placed(
            ref=ack.ref, mid=ack.mid, seq=ack.seq, ts=ack.ts, dup=ack.dup, durability=ack.durability
        )
        return Response(placed, status_code=200 if ack.dup else 201)

    return [send]
