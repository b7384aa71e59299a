"""Requests about the messages of a chat: send, change, read, mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import CHANGE_BYTES, MARK_BYTES
from chatserver.protocol.request_costs import by_limit
from chatserver.requests.operation import Route, declare_session_frame, request

if TYPE_CHECKING:
    from chatserver.container.core import CoreContainer

_MESSAGE = "/v1/chats/{chat:str}/messages/{seq:int}"


class Placed(msgspec.Struct, frozen=True):
    """The chat seq and timestamp of a message or of a change; fields as in the `ack` frame."""

    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


class History(msgspec.Struct, frozen=True):
    """Messages in ascending `seq`, without gaps; fields as in the `page` frame."""

    messages: list[frames.Message]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int
    marks: list[frames.Marks]


send = declare_session_frame(frames.Send, frames.Ack)


@request(
    frames.Edit,
    reply=frames.Ack,
    runs_in="gateway",
    memory=CHANGE_BYTES,
    http=Route(
        "PATCH", _MESSAGE, "messages:write", body="NewText", result=Placed, errors=(409, 413)
    ),
)
async def edit(container: CoreContainer, user: UserId, frame: frames.Edit) -> frames.Ack:
    """Replace the text of one of the user's own messages."""
    if container.check_edit is not None:
        frame = await container.check_edit(user, frame)
    return await container.message_change_service.change(user, frame)


@request(
    frames.Delete,
    reply=frames.Ack,
    runs_in="gateway",
    memory=CHANGE_BYTES,
    is_protective=True,
    http=Route("DELETE", _MESSAGE, "messages:write", result=Placed, errors=(409, 413)),
)
async def delete_message(
    container: CoreContainer, user: UserId, frame: frames.Delete
) -> frames.Ack:
    """Delete a message for everyone, or only for the user."""
    return await container.message_change_service.change(user, frame)


@request(
    frames.React,
    reply=frames.Ack,
    runs_in="gateway",
    memory=CHANGE_BYTES,
    http=Route(
        "PUT",
        f"{_MESSAGE}/reaction",
        "messages:write",
        body="NewReaction",
        result=Placed,
        errors=(409, 413),
    ),
)
async def react(container: CoreContainer, user: UserId, frame: frames.React) -> frames.Ack:
    """Set the user's reaction to a message; an empty reaction removes it."""
    return await container.message_change_service.change(user, frame)


@request(
    frames.Mark,
    runs_in="gateway",
    memory=lambda frame, size_bytes: MARK_BYTES,
    http=Route("PUT", "/v1/chats/{chat:str}/marks", "messages:write", body="NewMarks", status=204),
)
async def mark(container: CoreContainer, user: UserId, frame: frames.Mark) -> frames.Ok | None:
    """Mark messages as read or received, up to a `seq`. Marks never move back."""
    if frame.read is None and frame.received is None:
        raise BadRequest("read, received: at least one is required")
    await container.read_marks.move(user, frame)
    return None if frame.id is None else frames.Ok(frame.id)


@request(frames.Typing, reply=(), runs_in="gateway")
async def send_typing(container: CoreContainer, user: UserId, frame: frames.Typing) -> None:
    """Notify the other members that the user is typing."""
    await container.typing_signals.send(user, frame)


@request(
    frames.History,
    reply=frames.HistoryPage,
    runs_in="gateway",
    cost=by_limit,
    http=Route(
        "GET",
        "/v1/chats/{chat:str}/messages",
        "chats:read",
        result=History,
        descriptions={
            "before": "a chat seq",
            "after": "a chat seq",
            "ts": "the `ts` of the message at that seq; makes the request faster",
        },
    ),
)
async def list_messages(
    container: CoreContainer, user: UserId, frame: frames.History
) -> frames.HistoryPage:
    """List the messages before or after a chat `seq`; by default, the newest messages."""
    page = await container.history.get_page(user, frame)
    # The messages are already JSON and must not be encoded again.
    messages = [msgspec.Raw(message) for message in page.messages]
    # Clients read the newest page first, so only this page has the read marks.
    is_newest = frame.before is None and frame.after is None
    chat = ChatId(frame.chat)
    marks = await container.read_marks.list_marks(user, chat) if is_newest else []
    return frames.HistoryPage(
        id=frame.id,
        chat=frame.chat,
        messages=messages,
        tier=page.tier,
        more=page.has_more,
        stored=page.stored,
        marks=marks,
    )
