"""Admin routes for chats and messages: the host application sends as the system user.

The system user (`system`) can create groups, send messages to every group without being a member,
and send direct messages. To send as another user, the host application needs the scope `act_as` and
the header `X-Chat-As`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api.authorization import Caller, key
from chatserver.api.message_sending import send_message
from chatserver.api.request_bodies import PathId, PathSeq, build_body_type, build_frame, get_ref
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import GROUP_PREFIX, SYSTEM_USER, ChatId, Ref, UserId
from chatserver.errors import Forbidden, NotFound
from chatserver.hot.bus.job_progress import JobProgress
from chatserver.protocol import frames
from chatserver.service.messaging.broadcasts import USERS_MAX, Broadcasts

DELETERS_MAX = 5

if TYPE_CHECKING:  # at runtime, these types are built from frame types
    SystemChat: TypeAlias = msgspec.Struct
    SystemMessage: TypeAlias = msgspec.Struct
else:
    SystemChat = build_body_type("SystemChat", frames.CreateChat)
    SystemMessage = build_body_type("SystemMessage", frames.Send, "chat")


class NewBroadcast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to send to many users, in their direct chats with the system user."""

    users: Annotated[list[frames.Id], Meta(min_length=1, max_length=USERS_MAX)]
    body: Annotated[str, Meta(min_length=1, max_length=4000)]
    ref: frames.Id | None = None


class Broadcast(msgspec.Struct, frozen=True):
    """Progress of a broadcast: `state` is `running` or `done`."""

    broadcast: str
    state: str
    total: int
    done: int
    failed: int


class SystemPlace(msgspec.Struct, frozen=True):
    """The id, chat seq and timestamp (Unix µs) of a sent message."""

    mid: str
    seq: int
    ts: int


def build_admin_chats_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the routes for chats, messages and broadcasts below ``/v1/admin``."""
    return [*_build_chat_routes(container), *_build_broadcast_routes(container)]


async def _system_user(container: StorageContainer) -> UserId:
    user = SYSTEM_USER
    await container.user_loader.ensure_loaded(user, can_create=True)
    return user


def _build_chat_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @post("/v1/admin/chats", opt={"rule": key("chats:write"), "creates": True})
    async def create_system_chat(
        data: JSONBody[SystemChat], request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Create a group owned by the system user, with `members`."""
        user = await _system_user(container)
        frame = build_frame(frames.CreateChat, data, request)
        return await container.chats.create_chat(user, frame, is_host=True)

    @post(
        "/v1/admin/chats/{chat:str}/messages",
        opt={"rule": key("messages:write"), "creates": True, "limit": "sends"},
    )
    async def send_as_system(
        chat: PathId, data: JSONBody[SystemMessage], request: Request[Any, Any, Any]
    ) -> SystemPlace:
        """Send a message as the system user, to any group or to one of its direct chats."""
        user, frame = (
            await _system_user(container),
            build_frame(frames.Send, data, request, chat=chat),
        )
        is_group = chat.startswith(GROUP_PREFIX)
        ack = await send_message(container, user, frame, is_system=is_group)
        return SystemPlace(ack.mid, ack.seq, ack.ts)

    @delete(
        "/v1/admin/chats/{chat:str}/messages/{seq:int}",
        opt={"rule": key("messages:delete"), "errors": (409,)},
    )
    async def delete_any_message(
        chat: PathId, seq: PathSeq, request: Request[Any, Any, Any]
    ) -> None:
        """Delete any user's message for everyone."""
        await _delete(container, ChatId(chat), seq, Ref(get_ref(None, request)))

    return [create_system_chat, send_as_system, delete_any_message]


async def _delete(container: StorageContainer, chat: ChatId, seq: int, ref: Ref) -> None:
    """Delete a message on behalf of a group's owner or admin, or of the sender in a direct chat.

    Members see an ordinary deletion, and the rules of the chat apply (`commit_change.lua`).

    Raises:
        NotFound: the message does not exist, or none of these users may delete it.
    """
    seniority = await container.memberships.list_seniority(chat)
    privileged = [user for user, role in seniority if role in ("owner", "admin")]
    for user in (privileged or [user for user, _ in seniority])[:DELETERS_MAX]:
        try:
            await container.message_change_service.change(
                UserId(user), frames.Delete(0, chat, seq, ref)
            )
        except (Forbidden, NotFound):
            continue
        return
    raise NotFound("seq: the chat has no such message, or it cannot be deleted")


def _build_broadcast_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    async def deliver(user: UserId, ref: Ref, body: str) -> None:
        system = SYSTEM_USER
        chat = await container.chats.open_direct(system, user, is_host=True)
        await send_message(container, system, frames.Send(0, chat.chat, ref, body))

    broadcasts = Broadcasts(JobProgress(container.hot, container.clock), deliver)
    container.closers.append(broadcasts.stop)

    async def get_progress(job: str) -> Broadcast:
        progress = await broadcasts.get(job)
        return Broadcast(job, progress.state, progress.total, progress.done, progress.failed)

    @post("/v1/admin/broadcasts", status_code=202, opt={"rule": key("broadcast"), "creates": True})
    async def start_broadcast(
        data: JSONBody[NewBroadcast], principal: Caller, request: Request[Any, Any, Any]
    ) -> Broadcast:
        """Send one message to up to 1,000 users.

        A retry with the same `ref` resumes the broadcast or returns its progress.
        """
        await _system_user(container)
        users = [UserId(user) for user in data.users]
        ref = get_ref(data.ref, request)
        return await get_progress(await broadcasts.start(principal.name, ref, users, data.body))

    @get("/v1/admin/broadcasts/{broadcast:str}", opt={"rule": key("broadcast")})
    async def get_broadcast(broadcast: PathId) -> Broadcast:
        """Return the progress of a broadcast."""
        return await get_progress(broadcast)

    return [start_broadcast, get_broadcast]
