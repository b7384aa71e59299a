"""Membership and settings of groups: invite, join, leave, remove, roles, name and settings.

This code runs in `workers.rpc` on behalf of gateways. The `directory` table and Redis are two
stores, so a change has ordered steps, and another process completes an interrupted change::

    marker ─► directory: items, version+1, the change ─► Redis: one script ─► inboxes ─► clean up
    (1)       (2) one transaction                        (3)                  (4)        (5)

1. A marker in Redis records that a change may be in progress. If it is not removed in time,
   worker `repair` completes the change.
2. The transaction checks the version of the items that the change is based on. After it commits,
   the change is final. The chat's item keeps the content of the change until (5).
3. `change_members.lua` updates membership, write policy and entries together. This happens before
   the caller receives ``ok``: no later commit uses the previous membership (guarantee P7).
4. Members get the entries through the regular fan-out. Members who have left get the entries up to
   their leave entry. New members get the chat in their list.
5. The change is deleted from the item, and the marker is removed. Until the entries are stored, the
   item keeps a copy of it for `chatserver.service.membership.membership_recovery`.

If a process dies between (2) and (3), it has not reported success. The change is in the item and is
completed by the next change to the chat, a retry of the request, loading the chat into an empty
Redis, or worker `repair`. Redis is therefore never more than one change behind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, assert_never

import attrs
import msgspec

from chatserver.domain import membership_rules as rules
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, MidSource, Ref, Seq, UserId
from chatserver.domain.invitation_rules import Invitation
from chatserver.domain.jitter import add_jitter
from chatserver.domain.membership_rules import Changes, Group, Role, is_large_after
from chatserver.domain.messages import compute_digest
from chatserver.domain.write_restrictions import format_mute
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.hot.chats.membership import HotMembership
from chatserver.protocol import frames
from chatserver.service.membership.change_requests import (
    compute_request_digest,
    format_muted_until,
    format_settings,
    list_target_users,
    parse_settings,
)
from chatserver.service.membership.former_members import FormerMembers, make_former_member
from chatserver.service.membership.group_pictures import NO_GROUP_PICTURES, GroupPictures
from chatserver.service.membership.invitations import GroupInvitations
from chatserver.service.membership.membership_change_queue import MembershipChangeQueue
from chatserver.service.membership.membership_propagation import MembershipPropagation
from chatserver.service.membership.unstored_membership_changes import (
    ChangedMember,
    UnstoredChange,
    add_unstored,
    encode_record,
    find_first_transition,
    find_unstored,
)
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.chats.directory_items import StoredChat, StoredMember
from chatserver.warm.chats.memberships import Memberships

ATTEMPTS_MAX: Final = 20
CHANGE_S: Final = 10.0
# If the marker still exists this long after its creation, worker `repair` completes the change.
MARKER_TTL_S: Final = 2 * CHANGE_S
WAIT_S_MAX: Final = 0.2


class _DoneByFormerMember(Exception):
    """The request has already been completed, and its sender is no longer a member."""


class _Request(NamedTuple):
    """A request to change a group. `strangers` are the users to invite rather than add."""

    chat: ChatId
    actor: UserId
    frame: frames.AnyChange
    digest: str
    settings: Mapping[str, str | int]
    strangers: Collection[UserId]
    invitation: Invitation | None


class _State(NamedTuple):
    """The state that a change is based on: the chat's item, its members, and the group rules."""

    record: StoredChat
    members: Mapping[str, StoredMember]
    group: Group


class _Committed(NamedTuple):
    """A change that is in DynamoDB and Redis and has to be propagated."""

    record: StoredChat
    marker: str | None  # the marker in Redis, which is removed after propagation


@attrs.define(eq=False, repr=False, kw_only=True)
class GroupMembership:
    """Membership use case. One instance per process."""

    _memberships: Memberships
    _hot_membership: HotMembership
    _propagation: MembershipPropagation
    _former_members: FormerMembers
    _members_max: int = frames.MEMBERS_MAX
    _fanout_members_max: int = frames.MEMBERS_MAX
    _block_policy: BlockPolicy | None = None
    _invitations: GroupInvitations | None = None
    _pictures: GroupPictures = NO_GROUP_PICTURES
    _clock: Clock = attrs.field(factory=SystemClock)
    _serializer: MembershipChangeQueue = attrs.field(init=False)
    _mids: MidSource = attrs.field(factory=MidSource, init=False)

    def __attrs_post_init__(self) -> None:
        self._serializer = MembershipChangeQueue(self._propagation.try_deliver)

    async def change(
        self, actor: UserId, frame: frames.AnyChange, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Apply a member's request, and return the new state of the chat.

        `is_host`: the host application sends the request on behalf of `actor`. Otherwise, users for
        whom the actor is a stranger are invited instead of added
        (`chatserver.service.membership.invitations`).

        Guarantees:
            Idempotent: by (chat, sender, ref), as long as the chat keeps `ref` values. A request
                that changes nothing succeeds. A former member's retry succeeds, but returns no
                members or name.
            After it returns, no message from a removed member is committed (guarantee P7).
            Concurrency: several processes may change the chat concurrently; within a process, a
                chat's changes run one at a time.

        Raises:
            NotFound: the chat does not exist, the actor is not a member, or a user does not exist.
            Forbidden: the actor's role does not allow the change.
            BadRequest: the chat is a direct chat, or a limit is reached.
            Conflict: `ref` has already been used for a different request.
            Unavailable: the change may have been made.
        """
        chat = ChatId(frame.chat)
        try:
            async with asyncio.timeout(CHANGE_S):
                request = await self._prepare(chat, actor, frame, is_host=is_host)
                queue = self._serializer.join(chat)
                async with queue.committing:
                    committed = await self._plan_and_commit(request)
                if committed is not None and await self._serializer.propagate(
                    queue, committed.record
                ):
                    await self._end(committed)
                info = await self._propagation.describe(chat)
        except TimeoutError:
            raise Unavailable(f"chat {chat}: the change timed out; try again") from None
        except _DoneByFormerMember:
            return frames.ChatInfo(chat, "group", [])
        if self._invitations is not None:
            if isinstance(frame, frames.Invite) and request.strangers:
                invited = sorted(set(request.strangers) - set(info.members))
                await self._invitations.invite(
                    actor, chat, info.name, frame.role, request.strangers
                )
                info = msgspec.structs.replace(info, invited=invited)
            if request.invitation is not None:
                await self._invitations.close(actor, chat, request.invitation.inviter)
        if isinstance(frame, frames.Leave):
            # The actor has left, and must not see the member list.
            return frames.ChatInfo(chat, info.kind, [], info.name)
        return info

    async def _prepare(
        self, chat: ChatId, actor: UserId, frame: frames.AnyChange, *, is_host: bool
    ) -> _Request:
        settings, digest = parse_settings(frame), compute_request_digest(frame)
        strangers: set[UserId] = set()
        invitation = None
        if isinstance(frame, frames.Invite) and self._invitations is not None:
            users = [UserId(user) for user in frame.users]
            strangers = await self._invitations.find_strangers(actor, users, is_host=is_host)
        if isinstance(frame, frames.AcceptInvitation):
            invitation = await self._find_invitation(chat, actor, frame, digest)
        return _Request(
            chat=chat,
            actor=actor,
            frame=frame,
            digest=digest,
            settings=settings,
            strangers=strangers,
            invitation=invitation,
        )

    async def _find_invitation(
        self, chat: ChatId, actor: UserId, frame: frames.AcceptInvitation, digest: str
    ) -> Invitation | None:
        """Return the actor's invitation; None if already accepted. Raises NotFound."""
        if self._invitations is None:
            raise NotFound(rules.NOT_A_MEMBER)
        try:
            return await self._invitations.get(actor, chat)
        except NotFound:
            _, members = await self._read(chat, {actor})
            if actor in members or await self._is_done(chat, actor, frame, digest):
                return None
            raise

    async def _end(self, committed: _Committed) -> None:
        if committed.marker is not None:
            await self._hot_membership.end(committed.marker, has_unstored=True)

    # decision

    async def _plan_and_commit(self, request: _Request) -> _Committed | None:
        chat, actor, frame = request.chat, request.actor, request.frame
        users = {actor, *list_target_users(frame)}
        if request.invitation is not None:
            users.add(request.invitation.inviter)
        for attempt in range(ATTEMPTS_MAX):
            record, members = await self._read(chat, users)
            # Apply the previous change first, so that Redis is never more than one change behind.
            await self._propagation.apply(record)
            if await self._is_done(chat, actor, frame, request.digest):
                if actor not in members and not isinstance(frame, frames.Leave):
                    raise _DoneByFormerMember
                return None if record.change is None else _Committed(record, None)
            group = await self._make_group(request, record, members)
            changes = await self._plan(request, group)
            if not changes and not request.settings:
                return None
            committed = await self._commit(request, _State(record, members, group), changes)
            if committed is not None:
                if record.picture not in (None, committed.record.picture):
                    await self._pictures.release(chat, record.picture)
                return committed
            await asyncio.sleep(add_jitter(min(WAIT_S_MAX, 0.01 * 2**attempt), 0))
        raise Unavailable(f"chat {chat}: too many concurrent changes; try again")

    async def _read(
        self, chat: ChatId, users: Collection[str]
    ) -> tuple[StoredChat, Mapping[str, StoredMember]]:
        try:
            return await self._memberships.read(chat, users)
        except NotFound:
            raise NotFound(rules.NOT_A_MEMBER) from None

    async def _is_done(
        self, chat: ChatId, actor: UserId, frame: frames.AnyChange, digest: str
    ) -> bool:
        """Return whether this request has already been completed; load the chat if needed."""
        reference = await self._hot_membership.find_reference(chat, actor, Ref(frame.ref))
        if not reference.is_open:
            # Redis has lost the chat's `ref` values. Loading the chat restores them.
            await self._propagation.get_head(chat)
            reference = await self._hot_membership.find_reference(chat, actor, Ref(frame.ref))
            if not reference.is_open:
                raise Unavailable(f"chat {chat}: could not be loaded; try again")
        if reference.digest is None:
            return False
        # After a load from the warm tier, Redis has the digest of the entry, not of the request.
        kind = "update" if isinstance(frame, frames.UpdateChat) else "member"
        if reference.digest not in {digest, "", compute_digest(kind, format_settings(frame), None)}:
            raise Conflict("ref: already used for another request")
        return True

    async def _make_group(
        self, request: _Request, record: StoredChat, members: Mapping[str, StoredMember]
    ) -> Group:
        chat, actor, frame = request.chat, request.actor, request.frame
        roles: dict[UserId, Role] = {UserId(user): member.role for user, member in members.items()}
        if isinstance(frame, frames.Leave) and roles.get(actor) == "owner":
            # To choose a new owner, all members are needed, ordered by join time.
            all_members = await self._memberships.list_seniority(chat)
            roles = {UserId(user): role for user, role in all_members}
        banned: set[UserId] = set()
        if isinstance(
            frame, frames.Invite | frames.Join | frames.AcceptInvitation | frames.BanMember
        ):
            users = list_target_users(frame) or [actor]
            banned = {UserId(user) for user in await self._memberships.find_banned(chat, users)}
        return Group(
            kind=record.kind,
            joining=record.joining,
            count=record.count or 0,
            members_max=self._members_max,
            roles=roles,
            banned=banned,
        )

    async def _plan(self, request: _Request, group: Group) -> Changes:
        """Return each affected user's new role; None removes the user."""
        actor, frame = request.actor, request.frame
        match frame:
            case frames.Invite():
                return await self._plan_invite(request, frame, group)
            case frames.Join():
                return await self._check_quota(rules.plan_join(group, actor))
            case frames.AcceptInvitation():
                if request.invitation is None:
                    return {}
                inviter, role = UserId(request.invitation.inviter), request.invitation.role
                if self._block_policy is not None:
                    await self._block_policy.require_unblocked(actor, [inviter])
                return await self._check_quota(rules.plan_accept(group, actor, inviter, role))
            case frames.Leave():
                return rules.plan_leave(group, actor)
            case frames.Remove():
                return rules.plan_remove(group, actor, UserId(frame.user))
            case frames.SetRole():
                return rules.plan_set_role(group, actor, UserId(frame.user), frame.role)
            case frames.UpdateChat():
                group.require_manager(actor)
                if frame.picture:
                    await self._pictures.claim(actor, request.chat, frame.picture)
                return {}
            case frames.MuteMember():
                return rules.plan_mute(group, actor, UserId(frame.user))
            case frames.BanMember():
                return rules.plan_ban(group, actor, UserId(frame.user))
            case frames.UnbanMember():
                group.require_manager(actor)
                await self._memberships.delete_ban(frame.chat, frame.user)
                return {}
            case _ as never:
                assert_never(never)

    async def _plan_invite(self, request: _Request, frame: frames.Invite, group: Group) -> Changes:
        changes = rules.plan_invite(group, request.actor, map(UserId, frame.users), frame.role)
        if self._block_policy is not None and changes:
            await self._block_policy.require_unblocked(request.actor, list(changes))
        existing = await self._memberships.find_known(list(changes))
        for user in changes:
            if user not in existing:
                raise NotFound(f"{user}: there is no such user")
        return await self._check_quota(
            {user: role for user, role in changes.items() if user not in request.strangers}
        )

    async def _check_quota(self, changes: Changes) -> Changes:
        if self._invitations is not None and changes:
            await self._invitations.require_group_quota(list(changes))
        return changes

    # commit

    async def _commit(
        self, request: _Request, state: _State, changes: Changes
    ) -> _Committed | None:
        """Write a planned change to DynamoDB and Redis; return None if it must be planned again."""
        chat, frame = request.chat, request.frame
        record, members, group = state
        if any(role and user not in group.roles for user, role in changes.items()):
            await self._propagation.deliver_leaves(record, changes)
        marker = await self._hot_membership.begin(chat, MARKER_TTL_S)
        head = await self._propagation.get_head(chat, list(changes))
        # The lowest possible seq of the change's first entry; the script returns the actual seq.
        first = Seq(head.seq + 1)
        added: dict[str, tuple[Role, int]] = {
            user: (role, first + index)
            for index, (user, role) in enumerate(changes.items())
            if role and user not in group.roles
        }
        await self._former_members.correct_periods(
            chat, record.version, find_unstored(record), head, users=added
        )
        former = await self._former_members.restore(chat, added)
        mutes = self._find_mutes(frame)
        roles: dict[str, Role] = {
            user: role
            for user, role in changes.items()
            if role and user in group.roles and user not in mutes
        }
        removed = [user for user, role in changes.items() if role is None and user in group.roles]
        large, transition = self._find_transition(record, group.count + len(added) - len(removed))
        still_muted = {
            user: former_member.muted_until
            for user, former_member in former.items()
            if former_member.muted_until is not None
        }
        change = self._make_record(request, group, changes, {**mutes, **still_muted})
        change.joined = first
        change.transition = transition
        change.first_transition = find_first_transition(record) or transition
        change.version, change.after = record.version + 1, head.stored
        for index, entry in enumerate(change.members):
            if entry.user in removed:
                member = members[entry.user]
                # If Redis lost the join and it was applied again, `directory` may have its old seq.
                joined = head.joined.get(UserId(entry.user), member.joined)
                former[entry.user] = make_former_member(
                    member, joined, first + index, entry.mid, head.stored
                )
        unstored = add_unstored(record, change, head)
        written = None
        # If `unstored` is None, the item is full: this change must wait until earlier changes are
        # stored.
        if unstored is not None:
            written = await self._memberships.commit(
                chat=record,
                change=encode_record(change),
                added=added,
                roles=roles,
                removed=removed,
                settings=request.settings,
                large=large,
                muted=mutes,
                banned={frame.user: request.actor} if isinstance(frame, frames.BanMember) else {},
                former=former,
                unstored=unstored,
            )
        if written is None:
            await self._hot_membership.end(marker)
            return None
        failpoint("membership.after_directory")
        await self._propagation.apply(written)
        failpoint("membership.after_redis")
        return _Committed(written, marker)

    def _find_mutes(self, frame: frames.AnyChange) -> dict[str, int | None]:
        """Return `{member: end of the requested mute}`; None unmutes the member."""
        if not isinstance(frame, frames.MuteMember):
            return {}
        if frame.mute_s is None:
            return {frame.user: 0}
        return {frame.user: math.ceil(self._clock.time() + frame.mute_s) if frame.mute_s else None}

    def _find_transition(self, record: StoredChat, count: int) -> tuple[int, str]:
        """Return `(large, transition)` for a group that has `count` members after the change.

        `large` is the version that made the chat large, or 0. `transition` is "up" if the
        change makes the chat large, "down" if it makes the chat small, else "".
        """
        was_large = record.large > 0
        if not is_large_after(count, self._fanout_members_max, was_large=was_large):
            return 0, "down" if was_large else ""
        return (record.large, "") if was_large else (record.version + 1, "up")

    def _make_record(
        self,
        request: _Request,
        group: Group,
        changes: Changes,
        mutes: Mapping[str, int | None],
    ) -> UnstoredChange:
        frame, settings = request.frame, request.settings
        members = [
            ChangedMember(
                mid=self._mids.next(),
                user=user,
                role=role or "",
                is_new=user not in group.roles,
                mute=(format_mute(mutes[user]) or ":") if user in mutes else "",
                muted_until=format_muted_until(mutes[user]) if user in mutes else None,
                is_banned=isinstance(frame, frames.BanMember),
            )
            for user, role in changes.items()
        ]
        name = settings.get("name")
        return UnstoredChange(
            sender=request.actor,
            ref=frame.ref,
            digest=request.digest,
            members=members,
            update_mid=self._mids.next() if settings else "",
            name=None if name is None else str(name),
            body=format_settings(frame),
        )
