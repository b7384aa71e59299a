"""Requests by which users protect themselves: blocks and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import ENTRY_BYTES
from chatserver.protocol.request_costs import CHANGE, by_limit
from chatserver.requests.operation import Route, request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer

_BLOCK = "/v1/me/blocks/{user:str}"


@request(
    frames.Block,
    cost=CHANGE,
    memory=ENTRY_BYTES,
    is_protective=True,
    http=Route("PUT", _BLOCK, "users:write", status=204, errors=(413,)),
)
async def block(container: StorageContainer, user: UserId, frame: frames.Block) -> frames.Ok:
    """Block another user. Neither user can send the other direct messages or invitations."""
    await container.moderation.block(user, UserId(frame.user))
    return frames.Ok(frame.id)


@request(
    frames.Unblock,
    cost=CHANGE,
    memory=ENTRY_BYTES,
    is_protective=True,
    http=Route("DELETE", _BLOCK, "users:write", status=204),
)
async def unblock(container: StorageContainer, user: UserId, frame: frames.Unblock) -> frames.Ok:
    """Unblock another user."""
    await container.moderation.unblock(user, UserId(frame.user))
    return frames.Ok(frame.id)


@request(
    frames.Blocks,
    reply=frames.BlocksPage,
    cost=by_limit,
    is_needed_when_full=True,
    http=Route("GET", "/v1/me/blocks", "users:read"),
)
async def list_blocks(
    container: StorageContainer, user: UserId, frame: frames.Blocks
) -> frames.BlocksPage:
    """List the users that the caller has blocked, sorted by id."""
    page, following = await container.moderation.list_blocks(user, frame.after, frame.limit)
    return frames.BlocksPage(frame.id, page, following is not None, following)


@request(
    frames.Report,
    memory=ENTRY_BYTES,
    is_protective=True,
    http=Route(
        "PUT",
        "/v1/chats/{chat:str}/messages/{seq:int}/report",
        "messages:write",
        body="NewReport",
        status=204,
    ),
)
async def report(container: StorageContainer, user: UserId, frame: frames.Report) -> frames.Ok:
    """Report a message to the admins of its chat and of the server."""
    await container.moderation.report(user, ChatId(frame.chat), Seq(frame.seq), frame.reason)
    return frames.Ok(frame.id)
