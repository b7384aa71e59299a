"""Requests about the user's pending invitations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.ids import ChatId, UserId
from chatserver.protocol import frames
from chatserver.protocol.request_costs import by_limit
from chatserver.requests.operation import Route, request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer


@request(
    frames.Invitations,
    reply=frames.InvitationsPage,
    cost=by_limit,
    is_needed_when_full=True,
    http=Route("GET", "/v1/invitations", "chats:read"),
)
async def list_invitations(
    container: StorageContainer, user: UserId, frame: frames.Invitations
) -> frames.InvitationsPage:
    """List the user's pending invitations to groups, sorted by chat id.

    A page with `next` may have fewer invitations than `limit`, or none.
    """
    page, following = await container.invitations.list_pending(user, frame.after, frame.limit)
    return frames.InvitationsPage(frame.id, page, following is not None, following)


@request(
    frames.DeclineInvitation,
    is_protective=True,
    http=Route("DELETE", "/v1/invitations/{chat:str}", "chats:write", status=204),
)
async def decline_invitation(
    container: StorageContainer, user: UserId, frame: frames.DeclineInvitation
) -> frames.Ok:
    """Decline an invitation without notifying anyone."""
    await container.invitations.decline(user, ChatId(frame.chat))
    return frames.Ok(frame.id)
