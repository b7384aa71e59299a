"""Changes to the members and settings of a group; see `service.membership.group_membership`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatserver.domain.ids import UserId
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import compute_membership_change_cost
from chatserver.protocol.request_costs import BASE, CHANGE, USERS_PER_TOKEN, Cost
from chatserver.requests.operation import Operation

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer


async def _change(container: StorageContainer, user: UserId, frame: frames.AnyChange) -> frames.Ok:
    return frames.Ok(frame.id, await container.membership.change(user, frame))


def _compute_cost(frame: frames.AnyChange, reply: frames.Ok) -> int:
    assert reply.chat is not None
    return compute_membership_change_cost(frame, reply.chat)


def _by_users(frame: frames.Invite) -> int:
    return CHANGE + len(frame.users) // USERS_PER_TOKEN


def _declare(frame: type[frames.AnyChange], cost: Cost = CHANGE) -> Operation[frames.AnyChange]:
    return Operation(frame=frame, handler=_change, cost=cost, charge=_compute_cost)


invite = _declare(frames.Invite, _by_users)
join = _declare(frames.Join)
accept_invitation = _declare(frames.AcceptInvitation, BASE)
leave = _declare(frames.Leave)
remove = _declare(frames.Remove)
set_role = _declare(frames.SetRole)
update_chat = _declare(frames.UpdateChat)
mute_member = _declare(frames.MuteMember)
ban_member = _declare(frames.BanMember)
unban_member = _declare(frames.UnbanMember)
