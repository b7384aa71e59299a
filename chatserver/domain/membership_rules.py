"""Membership rules: allowed membership changes by role, and their effect on roles. No I/O.

| change        | allowed for                                                                |
|---------------|----------------------------------------------------------------------------|
| invite        | owner and admins; only the owner invites admins                            |
| join          | everyone, if `joining` is open                                             |
| accept        | users with an invitation of a current owner or admin                       |
| leave         | every member; if the owner leaves, the longest-standing admin becomes the  |
|               | owner, or if there are no admins, the longest-standing member              |
| remove        | admins remove members; the owner also removes admins                       |
| set_role      | the owner; if they make another member the owner, they become an admin     |
| update        | owner and admins                                                           |
| mute          | like remove: admins mute members; the owner also mutes admins              |
| ban, unban    | like remove; a banned user is not a member and cannot become one           |

Invariant: a group with members has exactly one owner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Forbidden, NotFound

ChatKind = Literal["direct", "group", "companion"]
Role = Literal["owner", "admin", "member"]
Joining = Literal["invited", "open"]
HistoryFrom = Literal["joined", "all"]
Changes = dict[UserId, Role | None]  # user → new role; None: no longer a member

NOT_A_MEMBER = "chat: no such chat, or you are not a member"
GROUP_MEMBERS_MAX = 100_000
_MANAGERS = frozenset({"owner", "admin"})


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A group before a change. `roles` has at least the members that the change affects."""

    kind: str
    joining: Joining
    count: int
    members_max: int
    roles: Mapping[UserId, Role]
    banned: Collection[UserId] = ()

    def get_role(self, actor: UserId) -> Role:
        """Return a member's role in the group.

        Raises:
            NotFound: the actor is not a member; the error does not reveal whether the chat exists.
            BadRequest: the chat is not a group.
        """
        role = self.roles.get(actor)
        if role is None:
            raise NotFound(NOT_A_MEMBER)
        if self.kind != "group":
            raise BadRequest(f"chat: members and settings of a {self.kind} chat cannot be changed")
        return role

    def require_manager(self, actor: UserId) -> Role:
        """Return the role of an owner or admin. Raises Forbidden, or as `get_role` does."""
        role = self.get_role(actor)
        if role not in _MANAGERS:
            raise Forbidden("chat: only the owner and admins may do this")
        return role


def plan_invite(
    group: Group, actor: UserId, users: Iterable[UserId], role: Literal["admin", "member"]
) -> Changes:
    """Return the changes for an invitation; existing members keep their roles."""
    if group.require_manager(actor) != "owner" and role == "admin":
        raise Forbidden("role: only the owner may invite admins")
    users = list(users)
    for user in users:
        if user in group.banned:
            raise Forbidden(f"users: {user} is banned from this chat")
    return _add(group, dict.fromkeys((user for user in users if user not in group.roles), role))


def plan_join(group: Group, actor: UserId) -> Changes:
    """Return the changes when the actor joins; empty if they are already a member."""
    if actor in group.roles:
        group.get_role(actor)
        return {}
    require_joinable(group, actor)
    return _add(group, {actor: "member"})


def require_joinable(group: Group, actor: UserId) -> None:
    """Check that a user who is not a member may join a group.

    Raises:
        NotFound: they may not; the error does not reveal whether the chat exists.
    """
    # Nobody can join a chat without members: it would have no owner. A banned user gets the same
    # error as a stranger.
    is_closed = group.kind != "group" or group.joining != "open" or group.count == 0
    if is_closed or actor in group.banned:
        raise NotFound(NOT_A_MEMBER)


def plan_accept(
    group: Group, actor: UserId, inviter: UserId, role: Literal["admin", "member"]
) -> Changes:
    """Return the changes when the actor accepts an invitation; empty if already a member.

    The inviter's current role in `group.roles` limits the role that is assigned.
    """
    if actor in group.roles:
        group.get_role(actor)
        return {}
    inviter_role = group.roles.get(inviter)
    is_closed = group.kind != "group" or inviter_role not in _MANAGERS
    if is_closed or actor in group.banned:
        raise NotFound("chat: no such chat, or the invitation is no longer valid")
    return _add(group, {actor: role if inviter_role == "owner" else "member"})


def _add(group: Group, added: Mapping[UserId, Role]) -> Changes:
    if group.count + len(added) > group.members_max:
        raise BadRequest(f"chat: must have at most {group.members_max} members")
    return dict(added)


def plan_leave(group: Group, actor: UserId) -> Changes:
    """Return the changes when the actor leaves; if the actor is the owner, a new owner is set.

    If the actor is the owner, `group.roles` must have all members, ordered by join time.
    """
    changes: Changes = {actor: None}
    if group.get_role(actor) == "owner":
        others = [user for user in group.roles if user != actor]
        admins = [user for user in others if group.roles[user] == "admin"]
        for successor in (admins or others)[:1]:
            changes[successor] = "owner"
    return changes


def plan_remove(group: Group, actor: UserId, user: UserId) -> Changes:
    """Return the changes when a user is removed; empty if they are not a member."""
    return {} if _check_target(group, actor, user) is None else {user: None}


def _check_target(group: Group, actor: UserId, user: UserId) -> Role | None:
    """Check that the actor may remove, mute or ban `user`; return the user's role.

    The role is None if the user is not a member.
    """
    role = group.require_manager(actor)
    if user == actor:
        raise BadRequest("user: must be another user; to leave the chat, use `leave`")
    target = group.roles.get(user)
    if target == "owner" or (target == "admin" and role != "owner"):
        raise Forbidden(
            "user: the owner cannot be removed, muted or banned; only the owner can remove, mute "
            "or ban an admin"
        )
    return target


def plan_mute(group: Group, actor: UserId, user: UserId) -> Changes:
    """Check that the actor may mute or unmute a member; return the member's unchanged role."""
    role = _check_target(group, actor, user)
    if role is None:
        raise NotFound(f"user: {user} is not a member")
    return {user: role}


def plan_ban(group: Group, actor: UserId, user: UserId) -> Changes:
    """Return the changes when a user is banned, member or not; empty if already banned."""
    _check_target(group, actor, user)
    return {} if user in group.banned else {user: None}


def plan_set_role(group: Group, actor: UserId, user: UserId, role: Role) -> Changes:
    """Return the changed roles; empty if the member already has the role."""
    if group.get_role(actor) != "owner":
        raise Forbidden("chat: only the owner may do this")
    if user not in group.roles:
        raise NotFound(f"user: {user} is not a member")
    if group.roles[user] == role:
        return {}
    if user == actor:
        raise BadRequest("role: a chat must have an owner; make another member the owner first")
    return {user: role, actor: "admin"} if role == "owner" else {user: role}


SMALL_AGAIN = 0.8  # a large chat stays large down to this share of the limit (hysteresis)


def is_large_after(count: int, fanout_max: int, *, was_large: bool) -> bool:
    """Return whether a chat with `count` members is large.

    Members read a large chat from its log, not from their inboxes.
    """
    return count >= SMALL_AGAIN * fanout_max if was_large else count > fanout_max
