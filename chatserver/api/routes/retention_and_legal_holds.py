"""Message retention and legal holds, for the host application."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.authorization import Caller, key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId, get_ref
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Ref
from chatserver.protocol import frames
from chatserver.protocol.frames import REASON_CHARS_MAX


class NewRetention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lifetime of messages sent from now on, in seconds; with 0, they do not expire."""

    retention_s: frames.Retention


class NewHold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason for a legal hold."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARS_MAX)]


class HoldInfo(msgspec.Struct, frozen=True):
    """A legal hold; `since` is in Unix milliseconds."""

    chat: str
    reason: str
    by: str
    since: int
    state: Annotated[
        str,
        msgspec.Meta(
            description="starting: expiring messages are being copied; in_force; ending: the "
            "copies are being deleted"
        ),
    ]


class HeldChat(msgspec.Struct, frozen=True):
    """A chat under a legal hold."""

    chat: str


def build_retention_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [_build_retention_route(container), *_build_hold_routes(container)]


def _build_retention_route(container: StorageContainer) -> HTTPRouteHandler:
    @put("/v1/admin/chats/{chat:str}/retention", opt={"rule": key("chats:write"), "errors": (409,)})
    async def set_retention(
        chat: PathId, data: JSONBody[NewRetention], request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Set the lifetime of messages that are sent from now on; with 0, they do not expire."""
        ref = Ref(get_ref(None, request))
        return await container.retention.set_retention(ChatId(chat), data.retention_s, ref)

    return set_retention


def _build_hold_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @put("/v1/admin/chats/{chat:str}/hold", opt={"rule": key("holds")})
    async def put_hold(chat: PathId, data: JSONBody[NewHold], principal: Caller) -> HoldInfo:
        """Place a chat under a legal hold.

        Messages are copied when members delete or edit them, or when they expire. An existing hold
        is not changed.
        """
        hold = await container.retention.put_hold(ChatId(chat), data.reason, principal.name)
        return _make_info(hold)

    @get("/v1/admin/chats/{chat:str}/hold", opt={"rule": key("holds")})
    async def get_hold(chat: PathId) -> HoldInfo:
        """Return the legal hold of a chat, with its reason and start time."""
        return _make_info(await container.retention.get_hold(ChatId(chat)))

    @delete("/v1/admin/chats/{chat:str}/hold", status_code=204, opt={"rule": key("holds")})
    async def release_hold(chat: PathId) -> None:
        """End a legal hold; its message copies are deleted within seconds."""
        await container.retention.release_hold(ChatId(chat))

    @get("/v1/admin/chats/{chat:str}/held", opt={"rule": key("holds")})
    async def list_held(chat: PathId, page: PageOf) -> Page[frames.Message]:
        """List the messages copied under a chat's legal hold, in message order.

        A copy is the message as it was before an edit, its deletion or its expiry.
        """
        copies = await container.holds.list_copies(chat, page.limit, page.start)
        return page.build(copies.items, copies.next)

    @get("/v1/admin/holds", opt={"rule": key("holds")})
    async def list_holds(page: PageOf) -> Page[HeldChat]:
        """List the chats that are under a legal hold, sorted by id."""
        chats = await container.holds.list_chats(page.limit, page.start)
        return page.build(map(HeldChat, chats.items), chats.next)

    return [put_hold, get_hold, release_hold, list_held, list_holds]


def _make_info(hold: Any) -> HoldInfo:
    return HoldInfo(hold.chat, hold.reason, hold.by, hold.since_ms, hold.state)
