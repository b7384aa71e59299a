"""Requests about the user's pending invitations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.ids import ChatId, UserId
from chatserver.protocol import frames
from chatserver.requests.operation import request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer


@request(frames.Invitations, is_needed_when_full=True)
async def list_invitations(
    container: StorageContainer, user: UserId, frame: frames.Invitations
) -> frames.InvitationsPage:
    """Return one page of the user's pending invitations."""
    page, following = await container.invitations.list_pending(user, frame.after, frame.limit)
    return frames.InvitationsPage(frame.id, page, following is not None, following)


@request(frames.DeclineInvitation)
async def decline_invitation(
    container: StorageContainer, user: UserId, frame: frames.DeclineInvitation
) -> frames.Ok:
    """Decline an invitation."""
    await container.invitations.decline(user, ChatId(frame.chat))
    return frames.Ok(frame.id)
