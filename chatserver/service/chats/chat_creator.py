"""Creation of direct chats, groups and companion chats.

A chat is written to the `directory` table first and loaded into Redis second. Both steps are
idempotent: if the process dies between them, the next call completes the creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId, derived_chat_id, direct_chat_id
from chatserver.domain.membership_rules import NOT_A_MEMBER, Role, is_large_after
from chatserver.domain.write_restrictions import BLOCKED
from chatserver.errors import BadRequest, Forbidden, NotFound
from chatserver.protocol import frames
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.membership.invitations import GroupInvitations
from chatserver.service.membership.unstored_membership_changes import UnstoredChange, encode_record
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.chats.directory import Directory


@attrs.define(eq=False, repr=False, kw_only=True)
class ChatCreator:
    """Creates chats. A group with more than `fanout_members_max` members is a large chat."""

    _directory: Directory
    _loader: ChatLoader
    _block_policy: BlockPolicy
    _invitations: GroupInvitations
    _clock: Clock
    _propagate: Callable[[ChatId], Awaitable[object]]
    _members_max: int = frames.MEMBERS_MAX
    _fanout_members_max: int = frames.MEMBERS_MAX

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Return the direct chat between two users; create it if needed.

        `user` sees the chat in their list immediately, `other` from the first message on.
        `is_host`: the caller has an API key, so limits on new chats do not apply.

        Raises:
            NotFound: `other` does not exist.
            BadRequest: the user has reached the limit on direct chats.
            RateLimited: the user has reached the daily limit on new chats with strangers.
            Forbidden: one user has blocked the other, and there is no chat yet.
        """
        chat = direct_chat_id(user, other)
        existing, is_blocked, (exists, is_listed) = await asyncio.gather(
            self._directory.find_known([other]),
            self._block_policy.is_blocked(user, other),
            self._directory.find_direct(chat, user),
        )
        _require_known([other], existing)
        if is_blocked and not exists:
            raise Forbidden(BLOCKED)
        if not is_listed and not is_host:
            await self._invitations.require_direct_chat_quota(user)
            if not exists:
                await self._invitations.require_contact(user, other)
        if not exists:
            await self._directory.create_direct(chat, user, other, self._clock.time())
            # If one user has blocked the other since the check above, mark the new chat as blocked.
            await self._block_policy.mark_new_chat(chat, user, other)
        elif not is_listed:
            await self._directory.add_to_chat_list(chat, user)
        await self._loader.load_chat(chat)
        return frames.ChatInfo(chat, "direct", sorted((user, other)), blocked=is_blocked)

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        """Create a group; the same creator and `ref` return the same group.

        Members whom the user may not add directly (`find_strangers`) are only invited. If the
        caller has an API key (`is_host`), all members are added.

        Raises:
            BadRequest: the group would exceed the member limit, or a member is already in
                `chats.per_user_max` groups.
            NotFound: a member does not exist; the error names the first missing member.
            NotFound: the group already exists, and the user has left it.
            Conflict: `ref` has already been used for another group.
            Forbidden: a member has blocked the creator, or the creator has blocked a member.
            TooLarge: an invited user already has the maximum number of invitations from the user.
        """
        if len(members) + 1 > self._members_max:
            raise BadRequest(f"members: must be at most {self._members_max}, including you")
        _require_known(members, await self._directory.find_known(members))
        await self._block_policy.require_unblocked(user, members)
        chat = derived_chat_id(user, ref)
        strangers = await self._invitations.find_strangers(user, members, is_host=is_host)
        invited = [member for member in members if member in strangers]
        members = [member for member in members if member not in strangers]
        await self._invitations.require_group_quota([user, *members])
        first = None
        if is_large_after(len(members) + 1, self._fanout_members_max, was_large=False):
            first = encode_record(UnstoredChange(user, ref, "", transition="up"))
        record = await self._directory.create_group(
            chat=chat,
            creator=user,
            members=members,
            name=name,
            now=self._clock.time(),
            first_change=first,
            invited=invited,
        )
        await self._loader.load_chat(chat)
        if invited:
            await self._invitations.invite(user, chat, name, "member", invited)
        if record.version > 1:
            return await self._describe_changed(chat, user)
        if record.large:
            # Entries of a large chat are in no inbox, so notify the chat's members.
            await self._propagate(chat)
        everybody: list[str] = [user, *members]
        return frames.ChatInfo(
            chat=chat,
            kind="group",
            members=everybody[: frames.MEMBERS_SHOWN_MAX] if record.large else everybody,
            name=name,
            count=len(everybody),
            roles={user: "owner"},
            large=record.large > 0,
            invited=[str(invitee) for invitee in invited],
        )

    async def _describe_changed(self, chat: ChatId, user: UserId) -> frames.ChatInfo:
        """Return the current state of an existing group if its creator is still a member."""
        record, members = await self._directory.get_chat_with_members(chat)
        roles: dict[str, Role] = {
            member.user: member.role for member in members if member.role != "member"
        }
        names = [member.user for member in members]
        if user not in names:
            raise NotFound(NOT_A_MEMBER)
        return frames.ChatInfo(
            chat=chat,
            kind="group",
            members=names[: frames.MEMBERS_SHOWN_MAX],
            name=record.name,
            count=len(names),
            roles=roles,
            joining=record.joining,
            history=record.history,
            large=record.large > 0,
        )

    async def open_companion_chat(
        self, chat: ChatId, user: UserId, companion: CompanionId, name: str
    ) -> frames.ChatInfo:
        """Return a user's chat with an AI companion; create it if needed. Idempotent."""
        try:
            record, _ = await self._directory.get_chat_with_members(chat)
        except NotFound:
            record = await self._directory.create_session_chat(
                chat, user, companion, name, self._clock.time()
            )
        await self._loader.load_chat(chat)
        members: list[str] = sorted((user, companion))
        is_ended = record.ended_ms is not None
        return frames.ChatInfo(
            chat, "companion", members, record.name, len(members), ended=is_ended
        )


def _require_known(users: Sequence[UserId], existing: Collection[str]) -> None:
    for user in users:
        if user not in existing:
            raise NotFound(f"{user}: there is no such user")
