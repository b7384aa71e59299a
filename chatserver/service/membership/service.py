"""Membership and settings of groups: invite, join, leave, remove, roles, name and settings.

Runs in `workers.rpc` on behalf of gateways. The directory and Redis are two stores, so a change has
ordered steps, and another process completes an interrupted one::

    marker ─► directory: rows, version+1, the change ─► Redis: one script ─► inboxes ─► clean up
    (1)       (2) one transaction                       (3)                  (4)        (5)

1. A marker in Redis records that a change may be in progress. If it is not removed in time,
   `workers.repair` completes the change.
2. The change is decided here, on rows whose version the transaction checks. From here on it is
   final: the chat's row holds its content until (5).
3. `change_members.lua` updates membership, write policy and entries together. This has happened
   when the caller receives ``ok``: no later commit uses the previous membership (promise P7).
4. Members get the entries by the regular fan-out. For members who left, the entry about that is the
   last one. New members get the chat listed.
5. The row drops the change, and the marker is removed. Until its entries are stored, the row keeps
   a copy that only `chatserver.service.membership.lost_changes` uses.

A process that dies between (2) and (3) has not reported success. The next change of the chat, a
retry of the request, a load of the chat into an empty Redis, or `workers.repair` completes the
change: each of them finds it in the row. Redis is therefore never more than one change behind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol, assert_never

import msgspec

from chatserver.domain import membership as rules
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, MidSource, Ref, UserId
from chatserver.domain.invitations import Invitation
from chatserver.domain.jitter import jittered
from chatserver.domain.membership import Changes, Group, Role
from chatserver.domain.membership_changes import FoundReference
from chatserver.domain.membership_periods import FormerMember
from chatserver.domain.messages import digest_of
from chatserver.domain.moderation import format_mute
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.protocol import frames
from chatserver.service.membership.change_records import (
    ChangedMember,
    ChangeRecord,
    add_unstored,
    encode_record,
    find_first_turn,
    find_unstored,
)
from chatserver.service.membership.change_requests import (
    digest_of_request,
    format_settings,
    format_told_mute,
    list_named_users,
    parse_settings,
)
from chatserver.service.membership.chat_serialization import ChatSerializer
from chatserver.service.membership.former_members import FormerMembers, former_of
from chatserver.service.membership.invitations import Invitations
from chatserver.service.membership.propagation import MembershipPropagation
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.chats.records import Chat

TRIES_MAX = 20
CHANGE_S = 10.0
HOLD_S = 2 * CHANGE_S  # a change whose marker is this old has ended, completed or not
WAIT_S_MAX = 0.2


class MemberRecord(Protocol):
    """A membership in the directory."""

    @property
    def role(self) -> Any: ...


class ChangingDirectory(Protocol):
    """Directory operations that decide and commit changes."""

    async def read(
        self, chat: str, users: Collection[str]
    ) -> tuple[Any, Mapping[str, MemberRecord]]: ...

    async def list_seniority(self, chat: str) -> list[tuple[str, Role]]: ...

    async def find_known(self, users: Collection[str]) -> set[str]: ...

    async def find_banned(self, chat: str, users: Collection[str]) -> set[str]: ...

    async def delete_ban(self, chat: str, user: str) -> None: ...

    async def commit(
        self,
        chat: Any,
        change: str,
        added: Mapping[str, tuple[Role, int]],
        roles: Mapping[str, Role],
        removed: Collection[str],
        settings: Mapping[str, str | int],
        large: int = 0,
        muted: Mapping[str, int | None] | None = None,
        banned: Mapping[str, str] | None = None,
        former: Mapping[str, FormerMember] | None = None,
        unstored: str = "",
    ) -> Any: ...


class HotNotes(Protocol):
    """Change markers and request references in Redis."""

    async def begin(self, chat: ChatId, hold_s: float) -> str: ...

    async def end(self, name: str) -> None: ...

    async def note_unstored(self, chat: ChatId) -> None: ...

    async def find_reference(self, chat: ChatId, sender: UserId, ref: Ref) -> FoundReference: ...


class _DoneByFormerMember(Exception):
    """The request was already done; its sender is no longer a member."""


class _Made(NamedTuple):
    """A change that is in both stores and has to be propagated."""

    record: Chat
    note: str | None  # to be removed after propagation


class Membership:
    """Membership use case. One instance per worker process."""

    def __init__(
        self,
        directory: ChangingDirectory,
        hot: HotNotes,
        turnover: MembershipPropagation,
        members_max: int,
        fanout_members_max: int = frames.MEMBERS_MAX,
        apart: BlockPolicy | None = None,
        clock: Clock | None = None,
        invitations: Invitations | None = None,
        *,
        former: FormerMembers,
    ) -> None:
        self._former = former
        self._invitations = invitations
        self._apart = apart
        self._clock = clock or SystemClock()
        self._fanout_members_max = fanout_members_max
        self._directory = directory
        self._hot = hot
        self._turnover = turnover
        self._in_turn = ChatSerializer(turnover.try_to_tell)
        self._members_max = members_max
        self._mids = MidSource()

    async def change(
        self, actor: UserId, frame: frames.AnyChange, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Apply a member's request, and return the new state of the chat.

        `is_host`: the host application sends it on behalf of `actor`. Users to whom the actor is a
        stranger are invited, not added (`chatserver.service.membership.invitations`).

        Guarantees:
            Idempotent: by (chat, sender, ref), as long as references of messages are kept; a
            request that changes nothing succeeds. A retry by a former member succeeds, without
            members and name.
            After it returns, no message of a removed member is committed (promise P7).
            Concurrency: the second of two concurrent changes is decided on the result of the first;
            those of one process wait for each other.

        Raises:
            NotFound: no such chat, the actor is not a member, or a user does not exist.
            Forbidden: the actor's role does not allow it.
            BadRequest: the chat is a direct one, or a limit is reached.
            Conflict: `ref` was used before for a different request.
            Unavailable: the change may have been made.
        """
        chat = ChatId(frame.chat)
        settings = parse_settings(frame)
        invitation = None
        try:
            async with asyncio.timeout(CHANGE_S):
                asked = await self._find_asked(actor, frame, is_host=is_host)
                if isinstance(frame, frames.AcceptInvitation):
                    invitation = await self._find_invitation(actor, frame)
                queue = self._in_turn.join(chat)
                async with queue.making:
                    made = await self._change(chat, actor, frame, settings, asked, invitation)
                if made is not None and await self._in_turn.tell(queue, made.record):
                    await self._end(made)
                info = await self._turnover.describe(chat)
        except TimeoutError:
            raise Unavailable(f"chat {chat}: was not changed in time; try again") from None
        except _DoneByFormerMember:
            return frames.ChatInfo(chat, "group", [])
        if isinstance(frame, frames.Invite) and asked and self._invitations is not None:
            invited = sorted(set(asked) - set(info.members))
            await self._invitations.invite(actor, chat, info.name, frame.role, asked)
            info = msgspec.structs.replace(info, invited=invited)
        if invitation is not None and self._invitations is not None:
            await self._invitations.close(actor, chat, invitation.inviter)
        if isinstance(frame, frames.Leave):
            # Former members may not see the member list.
            return frames.ChatInfo(chat, info.kind, [], info.name)
        return info

    async def _find_asked(
        self, actor: UserId, frame: frames.AnyChange, *, is_host: bool
    ) -> set[UserId]:
        """Return the users who must be invited because the actor is a stranger to them."""
        if self._invitations is None or not isinstance(frame, frames.Invite):
            return set()
        users = [UserId(user) for user in frame.users]
        return await self._invitations.find_strangers(actor, users, is_host=is_host)

    async def _find_invitation(
        self, actor: UserId, frame: frames.AcceptInvitation
    ) -> Invitation | None:
        """Return the invitation; None if it was accepted before. Raises NotFound."""
        if self._invitations is None:
            raise NotFound(rules.NOT_A_MEMBER)
        try:
            return await self._invitations.get(actor, ChatId(frame.chat))
        except NotFound:
            chat = ChatId(frame.chat)
            _, members = await self._read(chat, actor, frame)
            if actor in members:
                return None
            if await self._is_done(chat, actor, frame, digest_of_request(frame)):
                return None
            raise

    async def _change(
        self,
        chat: ChatId,
        actor: UserId,
        frame: frames.AnyChange,
        settings: Mapping[str, str | int],
        asked: Collection[UserId],
        invitation: Invitation | None,
    ) -> _Made | None:
        """Decide and commit the change; return it if it has to be propagated."""
        digest = digest_of_request(frame)
        for number in range(TRIES_MAX):
            record, members = await self._read(
                chat, actor, frame, [] if invitation is None else [invitation.inviter]
            )
            # Redis is never more than one change behind: the last one is applied before the next.
            await self._turnover.bring(record)
            if await self._is_done(chat, actor, frame, digest):
                if actor not in members and not isinstance(frame, frames.Leave):
                    raise _DoneByFormerMember
                return None if record.change is None else _Made(record, None)
            roles: dict[UserId, Role] = {UserId(user): each.role for user, each in members.items()}
            if isinstance(frame, frames.Leave) and roles.get(actor) == "owner":
                # All members, the oldest first: one of them becomes the owner.
                everybody = await self._directory.list_seniority(chat)
                roles = {UserId(user): role for user, role in everybody}
            banned = await self._find_banned(chat, actor, frame)
            group = Group(
                record.kind, record.joining, record.count, self._members_max, roles, banned
            )
            changes = await self._plan(group, actor, frame, asked, invitation)
            if not changes and not settings:
                return None
            made = await self._commit(
                record, group, members, actor, frame, digest, changes, settings
            )
            if made is not None:
                return made
            await asyncio.sleep(jittered(min(WAIT_S_MAX, 0.01 * 2**number), 0))
        raise Unavailable(f"chat {chat}: others keep changing it; try again")

    async def _read(
        self, chat: ChatId, actor: UserId, frame: frames.AnyChange, others: Collection[str] = ()
    ) -> tuple[Any, Any]:
        users = {actor, *list_named_users(frame), *others}
        try:
            return await self._directory.read(chat, users)
        except NotFound:
            raise NotFound(rules.NOT_A_MEMBER) from None

    async def _is_done(
        self, chat: ChatId, actor: UserId, frame: frames.AnyChange, digest: str
    ) -> bool:
        """Return whether this request was done before; load the chat if needed."""
        found = await self._hot.find_reference(chat, actor, Ref(frame.ref))
        if not found.is_open:
            # Redis lost the references; loading the chat restores them.
            await self._turnover.open(chat)
            found = await self._hot.find_reference(chat, actor, Ref(frame.ref))
            if not found.is_open:
                raise Unavailable(f"chat {chat}: could not be opened, try again")
        known = found.digest
        if known is None:
            return False
        # After a load from the warm tier, the digest is that of the entry, not of the request.
        kind = "update" if isinstance(frame, frames.UpdateChat) else "member"
        if known not in {digest, "", digest_of(kind, format_settings(frame), None)}:
            raise Conflict("ref: was used before for something else")
        return True

    async def _find_banned(
        self, chat: ChatId, actor: UserId, frame: frames.AnyChange
    ) -> set[UserId]:
        match frame:
            case frames.Invite() | frames.Join() | frames.AcceptInvitation() | frames.BanMember():
                users = list_named_users(frame) or [actor]
                return {UserId(user) for user in await self._directory.find_banned(chat, users)}
            case _:
                return set()

    async def _plan(
        self,
        group: Group,
        actor: UserId,
        frame: frames.AnyChange,
        asked: Collection[UserId],
        invitation: Invitation | None,
    ) -> Changes:
        match frame:
            case frames.Invite():
                changes = rules.plan_invite(group, actor, map(UserId, frame.users), frame.role)
                if self._apart is not None and changes:
                    await self._apart.require_together(actor, list(changes))
                known = await self._directory.find_known(list(changes))
                for user in changes:
                    if user not in known:
                        raise NotFound(f"{user}: there is no such user")
                return await self._with_room(
                    {user: role for user, role in changes.items() if user not in asked}
                )
            case frames.Join():
                return await self._with_room(rules.plan_join(group, actor))
            case frames.AcceptInvitation():
                if invitation is None:
                    return {}
                if self._apart is not None:
                    await self._apart.require_together(actor, [UserId(invitation.inviter)])
                return await self._with_room(
                    rules.plan_accept(group, actor, UserId(invitation.inviter), invitation.role)
                )
            case frames.Leave():
                return rules.plan_leave(group, actor)
            case frames.Remove():
                return rules.plan_remove(group, actor, UserId(frame.user))
            case frames.SetRole():
                return rules.plan_set_role(group, actor, UserId(frame.user), frame.role)
            case frames.UpdateChat():
                group.require_manager(actor)
                return {}
            case frames.MuteMember():
                return rules.plan_mute(group, actor, UserId(frame.user))
            case frames.BanMember():
                return rules.plan_ban(group, actor, UserId(frame.user))
            case frames.UnbanMember():
                group.require_manager(actor)
                await self._directory.delete_ban(frame.chat, frame.user)
                return {}
            case _ as never:
                assert_never(never)

    async def _with_room(self, changes: Changes) -> Changes:
        """Return the changes if all new members may join one more chat."""
        if self._invitations is not None and changes:
            await self._invitations.require_room(list(changes))
        return changes

    async def _commit(
        self,
        record: Chat,
        group: Group,
        members: Mapping[str, Any],
        actor: UserId,
        frame: frames.AnyChange,
        digest: str,
        changes: Changes,
        settings: Mapping[str, str | int],
    ) -> _Made | None:
        """Write a decided change to both stores; None if another change was committed first."""
        chat = ChatId(record.chat)
        if any(role and user not in group.roles for user, role in changes.items()):
            await self._turnover.see_off(record, changes)
        note = await self._hot.begin(chat, HOLD_S)
        # The lowest seq at which they can join; the script returns the exact one.
        head = await self._turnover.open(chat, list(changes))
        joined = head.seq + 1
        added: dict[str, tuple[Role, int]] = {
            user: (role, joined + index)
            for index, (user, role) in enumerate(changes.items())
            if role and user not in group.roles
        }
        await self._former.fix_periods(chat, find_unstored(record), head, added)
        former = await self._former.restore(chat, added)
        muted = self._mutes_of(frame)
        roles: dict[str, Role] = {
            user: role
            for user, role in changes.items()
            if role and user in group.roles and user not in muted
        }
        removed = [user for user, role in changes.items() if role is None and user in group.roles]
        banned = {frame.user: str(actor)} if isinstance(frame, frames.BanMember) else {}
        large, turn = self._turn(record, group.count + len(added) - len(removed))
        strangers = {user for user in changes if user not in group.roles}
        still_muted = {
            user: each.muted_until for user, each in former.items() if each.muted_until is not None
        }
        change = self._describe(
            actor, frame, digest, changes, strangers, settings, turn, {**muted, **still_muted}
        )
        change.joined = joined
        change.first_turn = find_first_turn(record) or turn
        for index, each in enumerate(change.members):
            if each.user in removed:
                member = members[each.user]
                # If Redis lost the join and applied it again, the directory may still have the old
                # seq.
                first = head.joined.get(UserId(each.user), member.joined)
                former[each.user] = former_of(member, first, joined + index, each.mid, head.stored)
        change.version, change.after = record.version + 1, head.stored
        unstored, written = add_unstored(record, change, head), None
        # Without room, the change waits until the changes before it are stored.
        if unstored is not None:
            what = (added, roles, removed, settings, large, muted, banned, former, unstored)
            written = await self._directory.commit(record, encode_record(change), *what)
        if written is None:
            await self._hot.end(note)
            return None
        failpoint("membership.after_directory")
        await self._turnover.bring(written)
        failpoint("membership.after_redis")
        return _Made(written, note)

    async def _end(self, made: _Made) -> None:
        if made.note is not None:
            await self._hot.note_unstored(ChatId(made.record.chat))
            await self._hot.end(made.note)

    def _mutes_of(self, frame: frames.AnyChange) -> dict[str, int | None]:
        """Return the end of the mute that the request sets, by member; None ends a mute."""
        if not isinstance(frame, frames.MuteMember):
            return {}
        if frame.mute_s is None:
            return {frame.user: 0}
        return {frame.user: math.ceil(self._clock.time() + frame.mute_s) if frame.mute_s else None}

    def _turn(self, record: Chat, count: int) -> tuple[int, str]:
        """Return the version with which the chat became large (or 0), and the transition now."""
        was_large = record.large > 0
        if not rules.is_large_after(count, self._fanout_members_max, was_large=was_large):
            return 0, "down" if was_large else ""
        return (record.large, "") if was_large else (record.version + 1, "up")

    def _describe(
        self,
        actor: UserId,
        frame: frames.AnyChange,
        digest: str,
        changes: Changes,
        strangers: Collection[str],
        settings: Mapping[str, str | int],
        turn: str,
        muted: Mapping[str, int | None],
    ) -> ChangeRecord:
        is_ban = isinstance(frame, frames.BanMember)
        members = [
            ChangedMember(
                self._mids.next(),
                user,
                role or "",
                user in strangers,
                (format_mute(muted[user]) or ":") if user in muted else "",
                format_told_mute(muted[user]) if user in muted else None,
                is_ban,
            )
            for user, role in changes.items()
        ]
        update_mid = self._mids.next() if settings else ""
        body = format_settings(frame)
        return ChangeRecord(
            actor,
            frame.ref,
            digest,
            members,
            update_mid,
            None if (name := settings.get("name")) is None else str(name),
            body,
            turn,
        )
