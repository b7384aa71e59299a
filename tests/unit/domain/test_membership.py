"""Permissions to change a group, as a table, and the single owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import UserId
from chatserver.domain.membership import (
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
    """A group, or a chat of another kind."""
    return Group(kind, joining, len(roles) if count is None else count, members_max, roles)


Plan = Callable[[Group, UserId], Changes]

PLANS: dict[str, Plan] = {
    "invite": lambda group, actor: plan_invite(group, actor, [NEW], "member"),
    "invite an admin": lambda group, actor: plan_invite(group, actor, [NEW], "admin"),
    "remove a member": lambda group, actor: plan_remove(group, actor, MEMBER),
    "remove an admin": lambda group, actor: plan_remove(group, actor, OTHER),
    "remove the owner": lambda group, actor: plan_remove(group, actor, OWNER),
    "make an admin": lambda group, actor: plan_set_role(group, actor, MEMBER, "admin"),
    "hand over": lambda group, actor: plan_set_role(group, actor, OTHER, "owner"),
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
    "hand over": {OWNER},
    "update": {OWNER, ADMIN},
    "leave": {OWNER, ADMIN, MEMBER},
}


@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("actor", [OWNER, ADMIN, MEMBER])
def test_plan_is_as_the_table_of_permissions_says(what: str, actor: UserId) -> None:
    """Each role may do what it may, and nothing else."""
    if actor in ALLOWED[what]:
        assert PLANS[what](group_of(), actor)
    else:
        with pytest.raises((Forbidden, BadRequest)):
            PLANS[what](group_of(), actor)


@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("kind", ["group", "direct"])
def test_plan_of_a_stranger_does_not_tell_whether_the_chat_exists(what: str, kind: str) -> None:
    """To a stranger the chat does not exist, whatever its kind."""
    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        PLANS[what](group_of(kind=kind), STRANGER)


@pytest.mark.parametrize("what", PLANS)
def test_plan_for_a_direct_chat_is_refused_with_the_reason(what: str) -> None:
    """Its two members stay what they are."""
    with pytest.raises(BadRequest, match="of a direct chat"):
        PLANS[what](group_of({ADMIN: "member", MEMBER: "member"}, kind="direct"), MEMBER)


def test_invite_leaves_alone_who_is_a_member() -> None:
    """An admin does not become a member by being invited again."""
    assert plan_invite(group_of(), OWNER, [ADMIN, NEW], "member") == {NEW: "member"}
    assert plan_invite(group_of(), OWNER, [ADMIN], "member") == {}


def test_invite_beyond_the_bound_is_refused() -> None:
    """The message names it; up to it there is room."""
    assert plan_invite(group_of(members_max=5), OWNER, [NEW], "member")
    with pytest.raises(BadRequest, match="at most 4 members"):
        plan_invite(group_of(members_max=4), OWNER, [NEW], "member")


def test_join_is_for_chats_that_are_open() -> None:
    """All others are as if they were not there."""
    assert plan_join(group_of(joining="open"), STRANGER) == {STRANGER: "member"}
    assert plan_join(group_of(joining="open"), ADMIN) == {}
    with pytest.raises(NotFound):
        plan_join(group_of(), STRANGER)
    with pytest.raises(NotFound):
        plan_join(group_of(kind="direct", joining="open"), STRANGER)
    with pytest.raises(BadRequest):
        plan_join(group_of(joining="open", members_max=4), STRANGER)


def test_join_of_a_chat_that_everybody_left_is_not_found() -> None:
    """It has ended: it would have no owner."""
    with pytest.raises(NotFound):
        plan_join(group_of({}, joining="open"), STRANGER)


def test_leave_of_the_owner_makes_the_oldest_admin_owner() -> None:
    """Before any member, however old."""
    roles: dict[UserId, Role] = {MEMBER: "member", OTHER: "admin", ADMIN: "admin", OWNER: "owner"}

    assert plan_leave(group_of(roles), OWNER) == {OWNER: None, OTHER: "owner"}


def test_leave_of_the_owner_without_admins_makes_the_oldest_member_owner() -> None:
    """Somebody has to be."""
    roles: dict[UserId, Role] = {OWNER: "owner", OTHER: "member", MEMBER: "member"}

    assert plan_leave(group_of(roles), OWNER) == {OWNER: None, OTHER: "owner"}
    assert plan_leave(group_of({OWNER: "owner"}), OWNER) == {OWNER: None}


def test_remove_of_nobody_changes_nothing() -> None:
    """A repeat is not an error."""
    assert plan_remove(group_of(), ADMIN, STRANGER) == {}


def test_remove_of_oneself_is_a_leave() -> None:
    """An owner who removed themselves would leave a group without an owner."""
    with pytest.raises(BadRequest, match="leave"):
        plan_remove(group_of(), OWNER, OWNER)


def test_set_role_hands_the_chat_over_in_one_change() -> None:
    """At no time are there two owners, or none."""
    assert plan_set_role(group_of(), OWNER, MEMBER, "owner") == {MEMBER: "owner", OWNER: "admin"}


def test_set_role_of_the_owner_himself_is_refused() -> None:
    """He would leave the chat without one."""
    with pytest.raises(BadRequest, match="must have an owner"):
        plan_set_role(group_of(), OWNER, OWNER, "member")
    assert plan_set_role(group_of(), OWNER, OWNER, "owner") == {}


def test_set_role_of_one_who_is_no_member_is_not_found() -> None:
    """The message names the user."""
    with pytest.raises(NotFound, match="stranger is not a member"):
        plan_set_role(group_of(), OWNER, STRANGER, "admin")


# any sequence of requests

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


def plan(group: Group, what: str, actor: UserId, user: UserId, role: Role) -> Changes:
    """Decide about one request; seniority is the order of joining."""
    match what:
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
def test_group_with_members_has_one_owner_whatever_is_asked(
    asked: list[tuple[str, UserId, UserId, Role]], joining: Joining
) -> None:
    """Roles change only by members who are allowed to change them."""
    roles: dict[UserId, Role] = {USERS[0]: "owner", USERS[1]: "member"}
    for what, actor, user, role in asked:
        before = dict(roles)
        group = group_of(roles, joining=joining, members_max=4)
        try:
            changes = plan(group, what, actor, user, role)
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
            # A stranger or a plain member changes nothing but his own membership.
            assert set(changes) <= {actor}


# muting and banning


@pytest.mark.parametrize("plan", [plan_mute, plan_ban])
def test_mute_and_ban_are_for_those_above(plan: Callable[[Group, UserId, UserId], Changes]) -> None:
    """Admins act on members, the owner also on admins, nobody on the owner or on themselves."""
    group = group_of()

    for actor, target in ((ADMIN, MEMBER), (OWNER, ADMIN), (OWNER, MEMBER)):
        assert set(plan(group, actor, target)) == {target}
    for actor, target in ((MEMBER, OTHER), (ADMIN, OTHER), (ADMIN, OWNER), (OWNER, OWNER)):
        with pytest.raises((Forbidden, BadRequest)):
            plan(group, actor, target)


def test_mute_of_one_who_is_no_member_is_not_found_and_a_ban_is_not() -> None:
    """A user can be banned before they join."""
    owner, stranger = UserId("o"), UserId("s")
    group = Group("group", "invited", 1, 256, {owner: "owner"})

    with pytest.raises(NotFound):
        plan_mute(group, owner, stranger)
    assert plan_ban(group, owner, stranger) == {stranger: None}


def test_banned_user_neither_joins_nor_is_invited() -> None:
    """A banned user only sees that the group is not open to them."""
    owner, banned = UserId("o"), UserId("b")
    group = Group("group", "open", 1, 256, {owner: "owner"}, {banned})

    with pytest.raises(NotFound):
        plan_join(group, banned)
    with pytest.raises(Forbidden):
        plan_invite(group, owner, [banned], "member")
    assert plan_ban(group, owner, banned) == {}
