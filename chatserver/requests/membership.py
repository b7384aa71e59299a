"""Changes to the members and settings of a group; see `service.membership.group_membership`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from chatserver.domain.access.caller import CALLER
from chatserver.domain.ids import UserId
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import (
    ENTRY_BYTES,
    MEMBER_BYTES,
    compute_membership_change_cost,
)
from chatserver.protocol.request_costs import BASE, BULK_USERS_MIN, CHANGE, USERS_PER_TOKEN
from chatserver.requests.operation import (
    Method,
    Operation,
    Properties,
    Route,
    RouteOptions,
    request,
)

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer

_CHAT = "/v1/chats/{chat:str}"
_MEMBER = "/v1/chats/{chat:str}/members/{user:str}"
_BAN = "/v1/chats/{chat:str}/bans/{user:str}"


async def _change(container: StorageContainer, user: UserId, frame: frames.AnyChange) -> frames.Ok:
    is_host = CALLER.get().is_host
    return frames.Ok(frame.id, await container.membership.change(user, frame, is_host=is_host))


def _compute_charge(frame: frames.AnyChange, reply: frames.Ok) -> int:
    assert reply.chat is not None
    return compute_membership_change_cost(frame, reply.chat)


def _by_users(frame: frames.Invite) -> int:
    return CHANGE + len(frame.users) // USERS_PER_TOKEN


def _compute_invite_memory(frame: frames.Invite, size_bytes: int) -> int:
    return ENTRY_BYTES + size_bytes + MEMBER_BYTES * len(frame.users)


def _has_many_users(frame: frames.Invite) -> bool:
    return len(frame.users) >= BULK_USERS_MIN


def _declare(
    frame: type[frames.AnyChange], route: Route, **properties: Unpack[Properties]
) -> Operation[frames.AnyChange]:
    shared: Properties = {
        "cost": CHANGE,
        "memory": ENTRY_BYTES,
        "charge": _compute_charge,
        "http": route,
    }
    return request(frame, **(shared | properties))(_change)


def _route(method: Method, path: str, summary: str, **options: Unpack[RouteOptions]) -> Route:
    return Route(method, path, "chats:write", summary=summary, result="chat", **options)


invite = _declare(
    frames.Invite,
    _route(
        "POST",
        f"{_CHAT}/members",
        "Add users to a group; users whose consent is needed receive an invitation.",
        body="Invitation",
        status=201,
        creates=True,
    ),
    cost=_by_users,
    memory=_compute_invite_memory,
    is_bulk=_has_many_users,
)
join = _declare(
    frames.Join,
    _route("POST", f"{_CHAT}/join", "Join an open group.", body="Reference", creates=True),
)
accept_invitation = _declare(
    frames.AcceptInvitation,
    _route(
        "POST",
        "/v1/invitations/{chat:str}/accept",
        "Accept an invitation and join the group.",
        body="Reference",
        creates=True,
    ),
    cost=BASE,
)
leave = _declare(
    frames.Leave,
    _route(
        "POST",
        f"{_CHAT}/leave",
        "Leave a group.",
        body="Reference",
        creates=True,
    ),
    is_protective=True,
)
remove = _declare(
    frames.Remove,
    _route("DELETE", _MEMBER, "Remove another user from a group."),
    is_protective=True,
)
set_role = _declare(
    frames.SetRole,
    _route("PATCH", _MEMBER, "Change the role of a member.", body="NewRole"),
)
update_chat = _declare(
    frames.UpdateChat,
    _route(
        "PATCH",
        _CHAT,
        "Change the settings of a group, such as its name and who may join.",
        body="ChatChanges",
    ),
)
mute_member = _declare(
    frames.MuteMember,
    _route(
        "PUT",
        f"{_MEMBER}/mute",
        "Mute a member of a group for `mute_s` seconds, or indefinitely; 0 unmutes.",
        body="Mute",
    ),
    is_protective=True,
)
ban_member = _declare(
    frames.BanMember,
    _route(
        "PUT",
        _BAN,
        "Remove a user from a group and prevent them from rejoining.",
    ),
    is_protective=True,
)
unban_member = _declare(
    frames.UnbanMember,
    _route("DELETE", _BAN, "Allow a banned user to rejoin."),
    is_protective=True,
)
