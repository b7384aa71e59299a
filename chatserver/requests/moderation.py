"""Requests by which users protect themselves: blocks and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.protocol import frames
from chatserver.protocol.request_costs import CHANGE, by_limit
from chatserver.requests.operation import request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer


@request(frames.Block, cost=CHANGE)
async def block(container: StorageContainer, user: UserId, frame: frames.Block) -> frames.Ok:
    """Block another user. NotFound: the other user does not exist."""
    await container.moderation.block(user, UserId(frame.user))
    return frames.Ok(frame.id)


@request(frames.Unblock, cost=CHANGE)
async def unblock(container: StorageContainer, user: UserId, frame: frames.Unblock) -> frames.Ok:
    """Remove the user's block of another user. NotFound: the other user does not exist."""
    await container.moderation.unblock(user, UserId(frame.user))
    return frames.Ok(frame.id)


@request(frames.Blocks, cost=by_limit, is_needed_when_full=True)
async def list_blocks(
    container: StorageContainer, user: UserId, frame: frames.Blocks
) -> frames.BlocksPage:
    """Return one page of the users that the user has blocked, sorted by id."""
    page, following = await container.moderation.list_blocks(user, frame.after, frame.limit)
    return frames.BlocksPage(frame.id, page, following is not None, following)


@request(frames.Report)
async def report(container: StorageContainer, user: UserId, frame: frames.Report) -> frames.Ok:
    """Store a report of a message."""
    await container.moderation.report(user, ChatId(frame.chat), Seq(frame.seq), frame.reason)
    return frames.Ok(frame.id)
