"""HTTP routes for pinned messages."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from litestar import Request, delete, get, put
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId, PathSeq, RefQuery, get_ref
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Ref, Seq
from chatserver.features.pins.container import PinContainer
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import CHANGE_BYTES

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")
CHANGE = {"rule": WRITE, "memory": CHANGE_BYTES, "errors": (409, 413)}


class PinnedMessage(msgspec.Struct, frozen=True):
    """A pinned message, in the same format as in the history. `pinned_at` is in ms since 1970."""

    pinned_at: int
    message: frames.Message


def build_pins_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/pins", opt={"rule": READ})
    async def list_pins(chat: PathId, actor: Actor, page: PageOf) -> Page[PinnedMessage]:
        """List a chat's pinned messages, newest message first.

        Messages that are deleted, expired or hidden by the user are left out.
        """
        pins, last = await container.get(PinContainer).pins.list_page(
            actor, ChatId(chat), page.open(int), page.limit
        )
        items = [
            # `pin.json` is already JSON, so it is not decoded and encoded again.
            PinnedMessage(pin.pin.pinned_at_ms, cast("frames.Message", msgspec.Raw(pin.json)))
            for pin in pins
        ]
        return page.build(items, last)

    @put("/v1/chats/{chat:str}/pins/{seq:int}", status_code=204, opt=CHANGE)
    async def pin(
        chat: PathId,
        seq: PathSeq,
        actor: Actor,
        request: Request[Any, Any, Any],
        ref: RefQuery = None,
    ) -> None:
        """Pin a message for all members. In a group, only owners and admins may do this."""
        await container.get(PinContainer).pins.pin(
            actor, ChatId(chat), Seq(seq), Ref(get_ref(ref, request))
        )

    @delete("/v1/chats/{chat:str}/pins/{seq:int}", status_code=204, opt=CHANGE)
    async def unpin(
        chat: PathId,
        seq: PathSeq,
        actor: Actor,
        request: Request[Any, Any, Any],
        ref: RefQuery = None,
    ) -> None:
        """Unpin a message. In a group, only owners and admins may do this."""
        await container.get(PinContainer).pins.unpin(
            actor, ChatId(chat), Seq(seq), Ref(get_ref(ref, request))
        )

    return [list_pins, pin, unpin]
