"""Permissions to change a group, as a table, and the single owner of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import UserId
from chatserver.domain.membership_rules import (
    Changes,
    Group,
    Joining,
    Role,
    plan_ban,
    plan_invite,
    plan_join,
    plan_leave,
    plan_mute,
    plan_remove,
    plan_set_role,
)
from chatserver.errors import BadRequest, ChatError, Forbidden, NotFound

OWNER, ADMIN, MEMBER, OTHER, STRANGER = map(
    UserId, ("owner", "admin", "member", "other", "stranger")
)
ROLES: dict[UserId, Role] = {OWNER: "owner", ADMIN: "admin", MEMBER: "member", OTHER: "admin"}
NEW = UserId("new")


def group_of(
    roles: dict[UserId, Role] = ROLES,
    *,
    kind: str = "group",
    joining: Joining = "invited",
    members_max: int = 256,
    count: int | None = None,
) -> Group:
    """Return a group, or a chat of another kind."""
    return Group(kind, joining, len(roles) if count is None else count, members_max, roles)


Plan = Callable[[Group, UserId], Changes]

PLANS: dict[str, Plan] = {
    "invite": lambda group, actor: plan_invite(group, actor, [NEW], "member"),
    "invite an admin": lambda group, actor: plan_invite(group, actor, [NEW], "admin"),
    "remove a member": lambda group, actor: plan_remove(group, actor, MEMBER),
    "remove an admin": lambda group, actor: plan_remove(group, actor, OTHER),
    "remove the owner": lambda group, actor: plan_remove(group, actor, OWNER),
    "make an admin": lambda group, actor: plan_set_role(group, actor, MEMBER, "admin"),
    "transfer ownership": lambda group, actor: plan_set_role(group, actor, OTHER, "owner"),
    "update": lambda group, actor: {actor: group.require_manager(actor)},
    "leave": plan_leave,
}

ALLOWED = {
    "invite": {OWNER, ADMIN},
    "invite an admin": {OWNER},
    "remove a member": {OWNER, ADMIN},
    "remove an admin": {OWNER},
    "remove the owner": set[UserId](),
    "make an admin": {OWNER},
    "transfer ownership": {OWNER},
    "update": {OWNER, ADMIN},
    "leave": {OWNER, ADMIN, MEMBER},
}


@pytest.mark.parametrize("action", PLANS)
@pytest.mark.parametrize("actor", [OWNER, ADMIN, MEMBER])
def test_plan_follows_the_table_of_permissions(action: str, actor: UserId) -> None:
    """Each role may do exactly what the table allows."""
    if actor in ALLOWED[action]:
        assert PLANS[action](group_of(), actor)
    else:
        with pytest.raises((Forbidden, BadRequest)):
            PLANS[action](group_of(), actor)


@pytest.mark.parametrize("action", PLANS)
@pytest.mark.parametrize("kind", ["group", "direct"])
def test_plan_of_a_nonmember_does_not_reveal_the_chat(action: str, kind: str) -> None:
    """A nonmember gets the same error for a chat of any kind."""
    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        PLANS[action](group_of(kind=kind), STRANGER)


@pytest.mark.parametrize("action", PLANS)
def test_plan_for_a_direct_chat_is_refused_with_the_reason(action: str) -> None:
    """The members and roles of a direct chat never change."""
    with pytest.raises(BadRequest, match="of a direct chat"):
        PLANS[action](group_of({ADMIN: "member", MEMBER: "member"}, kind="direct"), MEMBER)


def test_invite_does_not_change_existing_members() -> None:
    """An admin who is invited again stays an admin."""
    assert plan_invite(group_of(), OWNER, [ADMIN, NEW], "member") == {NEW: "member"}
    assert plan_invite(group_of(), OWNER, [ADMIN], "member") == {}


def test_invite_above_the_member_limit_is_refused() -> None:
    """The message contains the limit; a group may reach it."""
    assert plan_invite(group_of(members_max=5), OWNER, [NEW], "member")
    with pytest.raises(BadRequest, match="at most 4 members"):
        plan_invite(group_of(members_max=4), OWNER, [NEW], "member")


def test_join_is_allowed_only_for_open_groups() -> None:
    """Other chats are not found."""
    assert plan_join(group_of(joining="open"), STRANGER) == {STRANGER: "member"}
    assert plan_join(group_of(joining="open"), ADMIN) == {}
    with pytest.raises(NotFound):
        plan_join(group_of(), STRANGER)
    with pytest.raises(NotFound):
        plan_join(group_of(kind="direct", joining="open"), STRANGER)
    with pytest.raises(BadRequest):
        plan_join(group_of(joining="open", members_max=4), STRANGER)


def test_join_of_an_empty_group_is_not_found() -> None:
    """The group has ended and would have no owner."""
    with pytest.raises(NotFound):
        plan_join(group_of({}, joining="open"), STRANGER)


def test_leave_of_the_owner_makes_the_oldest_admin_owner() -> None:
    """Admins take precedence over members who joined earlier."""
    roles: dict[UserId, Role] = {MEMBER: "member", OTHER: "admin", ADMIN: "admin", OWNER: "owner"}

    assert plan_leave(group_of(roles), OWNER) == {OWNER: None, OTHER: "owner"}


def test_leave_of_the_owner_without_admins_makes_the_oldest_member_owner() -> None:
    """A group with members always has an owner."""
    roles: dict[UserId, Role] = {OWNER: "owner", OTHER: "member", MEMBER: "member"}

    assert plan_leave(group_of(roles), OWNER) == {OWNER: None, OTHER: "owner"}
    assert plan_leave(group_of({OWNER: "owner"}), OWNER) == {OWNER: None}


def test_remove_of_a_nonmember_changes_nothing() -> None:
    """A retry is not an error."""
    assert plan_remove(group_of(), ADMIN, STRANGER) == {}


def test_owner_cannot_remove_themselves() -> None:
    """The error suggests to leave, which also chooses the next owner."""
    with pytest.raises(BadRequest, match="leave"):
        plan_remove(group_of(), OWNER, OWNER)


def test_set_role_transfers_ownership_in_one_change() -> None:
    """The group always has exactly one owner."""
    assert plan_set_role(group_of(), OWNER, MEMBER, "owner") == {MEMBER: "owner", OWNER: "admin"}


def test_owner_cannot_give_up_ownership() -> None:
    """The group would have no owner."""
    with pytest.raises(BadRequest, match="must have an owner"):
        plan_set_role(group_of(), OWNER, OWNER, "member")
    assert plan_set_role(group_of(), OWNER, OWNER, "owner") == {}


def test_set_role_of_a_nonmember_is_not_found() -> None:
    """The message names the user."""
    with pytest.raises(NotFound, match="stranger is not a member"):
        plan_set_role(group_of(), OWNER, STRANGER, "admin")


USERS: Sequence[UserId] = [UserId(f"u{n}") for n in range(5)]
InvitedRole = Literal["admin", "member"]
users = st.sampled_from(USERS)
requests = st.one_of(
    st.tuples(st.just("invite"), users, users, st.sampled_from(get_args(InvitedRole))),
    st.tuples(st.just("join"), users, users, st.just("member")),
    st.tuples(st.just("leave"), users, users, st.just("member")),
    st.tuples(st.just("remove"), users, users, st.just("member")),
    st.tuples(st.just("set_role"), users, users, st.sampled_from(get_args(Role))),
)


def plan_request(group: Group, action: str, actor: UserId, user: UserId, role: Role) -> Changes:
    """Plan one request; seniority is the order of joining."""
    match action:
        case "invite":
            return plan_invite(group, actor, [user], "admin" if role == "admin" else "member")
        case "join":
            return plan_join(group, actor)
        case "leave":
            return plan_leave(group, actor)
        case "remove":
            return plan_remove(group, actor, user)
        case _:
            return plan_set_role(group, actor, user, role)


@given(st.lists(requests, max_size=40), st.sampled_from(get_args(Joining)))
def test_group_with_members_has_one_owner_after_any_requests(
    sequence: list[tuple[str, UserId, UserId, Role]], joining: Joining
) -> None:
    """Roles change only by members who are allowed to change them."""
    roles: dict[UserId, Role] = {USERS[0]: "owner", USERS[1]: "member"}
    for action, actor, user, role in sequence:
        before = dict(roles)
        group = group_of(roles, joining=joining, members_max=4)
        try:
            changes = plan_request(group, action, actor, user, role)
        except ChatError:
            continue
        for changed, new in changes.items():
            if new is None:
                del roles[changed]
            else:
                roles[changed] = new
        assert list(roles.values()).count("owner") == (1 if roles else 0)
        assert len(roles) <= 4
        if before.get(actor) in (None, "member"):
            # A nonmember or a plain member can only change their own membership.
            assert set(changes) <= {actor}


@pytest.mark.parametrize("plan", [plan_mute, plan_ban])
def test_mute_and_ban_need_a_higher_role(plan: Callable[[Group, UserId, UserId], Changes]) -> None:
    """Admins may mute and ban members, the owner also admins; nobody the owner or themselves."""
    group = group_of()

    for actor, target in ((ADMIN, MEMBER), (OWNER, ADMIN), (OWNER, MEMBER)):
        assert set(plan(group, actor, target)) == {target}
    for actor, target in ((MEMBER, OTHER), (ADMIN, OTHER), (ADMIN, OWNER), (OWNER, OWNER)):
        with pytest.raises((Forbidden, BadRequest)):
            plan(group, actor, target)


def test_ban_of_a_nonmember_is_allowed_and_a_mute_is_not() -> None:
    """A user can be banned before they join."""
    owner, stranger = UserId("o"), UserId("s")
    group = Group("group", "invited", 1, 256, {owner: "owner"})

    with pytest.raises(NotFound):
        plan_mute(group, owner, stranger)
    assert plan_ban(group, owner, stranger) == {stranger: None}


def test_banned_user_cannot_join_or_be_invited() -> None:
    """A banned user gets the same error as for a group that is not open."""
    owner, banned = UserId("o"), UserId("b")
    group = Group("group", "open", 1, 256, {owner: "owner"}, {banned})

    with pytest.raises(NotFound):
        plan_join(group, banned)
    with pytest.raises(Forbidden):
        plan_invite(group, owner, [banned], "member")
    assert plan_ban(group, owner, banned) == {}
