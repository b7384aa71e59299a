"""Requests about the user's list of chats, and new chats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.access.caller import CALLER
from chatserver.domain.ids import UserId
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import (
    CHAT_BYTES,
    MEMBER_BYTES,
    NAME_CHAR_BYTES,
    NEW_INBOX_BYTES,
)
from chatserver.protocol.request_costs import BASE, CHANGE, CHATS_PER_TOKEN, USERS_PER_TOKEN
from chatserver.requests.operation import Route, request

if TYPE_CHECKING:
    from chatserver.container.core import CoreContainer

DIRECT_BYTES = CHAT_BYTES + 2 * MEMBER_BYTES + NEW_INBOX_BYTES


def _by_chats(frame: frames.Chats) -> int:
    return BASE + frame.limit // CHATS_PER_TOKEN


@request(
    frames.Chats,
    reply=frames.ChatsPage,
    runs_in="gateway",
    cost=_by_chats,
    http=Route("GET", "/v1/chats", "chats:read"),
)
async def list_chats(
    container: CoreContainer, user: UserId, frame: frames.Chats
) -> frames.ChatsPage:
    """List the user's chats, newest activity first."""
    chats, following = await container.chats.list_page(user, frame.after, frame.limit)
    return frames.ChatsPage(frame.id, chats, following is not None, following)


@request(
    frames.OpenDirect,
    runs_in="gateway",
    cost=CHANGE,
    memory=lambda frame, size_bytes: DIRECT_BYTES,
    http=Route("PUT", "/v1/direct-chats/{user:str}", "chats:write", result="chat"),
)
async def open_direct(
    container: CoreContainer, user: UserId, frame: frames.OpenDirect
) -> frames.Ok:
    """Open the direct chat with another user; repeated calls return the same chat."""
    is_host = CALLER.get().is_host
    info = await container.chats.open_direct(user, UserId(frame.user), is_host=is_host)
    return frames.Ok(frame.id, info)


def _by_members(frame: frames.CreateChat) -> int:
    return CHANGE + len(frame.members) // USERS_PER_TOKEN


def _compute_memory(frame: frames.CreateChat, size_bytes: int) -> int:
    listed = 0  # bytes of the names of the chat and of its members, in the event of each member
    if len(frame.members) < frames.EVENT_MEMBERS_MAX:
        listed = sum(map(len, frame.members)) + 4 * len(frame.members)
    listed += NAME_CHAR_BYTES * len(frame.name or "")
    return CHAT_BYTES + size_bytes + (MEMBER_BYTES + listed) * (1 + len(frame.members))


@request(
    frames.CreateChat,
    runs_in="gateway",
    cost=_by_members,
    memory=_compute_memory,
    http=Route(
        "POST", "/v1/chats", "chats:write", body="NewChat", result="chat", status=201, creates=True
    ),
)
async def create_chat(
    container: CoreContainer, user: UserId, frame: frames.CreateChat
) -> frames.Ok:
    """Create a group; `members` whose consent is needed receive an invitation."""
    info = await container.chats.create_chat(user, frame, is_host=CALLER.get().is_host)
    return frames.Ok(frame.id, info)
