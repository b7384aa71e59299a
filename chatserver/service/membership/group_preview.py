"""Previews of open groups, for users who have a link to one."""

from __future__ import annotations

import msgspec

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER, Group, require_joinable
from chatserver.errors import NotFound
from chatserver.protocol.frames import MEMBERS_MAX
from chatserver.warm.chats.memberships import Memberships


class GroupPreview(msgspec.Struct, frozen=True):
    """A group before a user joins it. `count` is the number of members."""

    chat: str
    name: str
    topic: str
    count: int
    is_member: bool


async def read_group_preview(memberships: Memberships, chat: ChatId, actor: UserId) -> GroupPreview:
    """Return what a user sees of a group before they join it.

    Guarantees:
        Cost: reads of the chat and of two items of the user.

    Raises:
        NotFound: there is no such group, or the user may not join it. A banned user gets the same
            error as a stranger, and so does everyone for a group that is not open.
    """
    try:
        record, members = await memberships.read(chat, {actor})
    except NotFound:
        raise NotFound(NOT_A_MEMBER) from None
    roles = {UserId(user): member.role for user, member in members.items()}
    banned = [UserId(user) for user in await memberships.find_banned(chat, {actor})]
    count = record.count or 0
    group = Group(
        kind=record.kind,
        joining=record.joining,
        count=count,
        members_max=MEMBERS_MAX,
        roles=roles,
        banned=banned,
    )
    if actor not in roles:
        require_joinable(group, actor)
    elif record.kind != "group":
        raise NotFound(NOT_A_MEMBER)
    return GroupPreview(chat, record.name or "", record.topic or "", count, actor in roles)
