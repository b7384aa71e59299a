"""Who is in a group and what it is: invite, join, leave, remove, roles, name and settings.

Runs in `workers.rpc`, on behalf of gateways. Directory and Redis are two stores, so a change has an
order, and what dies on the way is taken up by somebody else::

    note ─► directory: rows, version+1, the change ─► Redis: one script ─► inboxes ─► clean up
    (1)     (2) one transaction                       (3)                  (4)        (5)

1. A note in Redis says that a change may be under way. If nobody takes it back in time,
   `workers.repair` finishes whatever there is.
2. Decided here, on rows whose version the transaction proves. From here on the change is a fact:
   the chat's row keeps what it says until (5).
3. `change_members.lua` moves membership, gate and entries together. When the caller hears ``ok``,
   this has happened: no later commit sees the membership as it was before (promise P7).
4. Members hear of the entries by the ordinary fan-out; who left gets the one that says so as the
   last, who came learns of the chat.
5. The row forgets the change, the note is taken back. Only `chatserver.service.lost_changes` finds
   it there until its entries are stored.

A process that dies between (2) and (3) has told nobody that it is done. The next change of the
chat, a repeat of the request, a load of the chat into an empty Redis or `workers.repair` finishes
it, because each of them finds the change in the row. So Redis is never more than one change behind.
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
from chatserver.domain.membershipchanges import FoundReference
from chatserver.domain.messages import digest_of
from chatserver.domain.moderation import format_mute
from chatserver.domain.periods import FormerMember
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.protocol import frames
from chatserver.service.apartness import Apartness
from chatserver.service.change_requests import (
    digest_of_request,
    format_settings,
    format_told_mute,
    list_named_users,
    parse_settings,
)
from chatserver.service.changes import (
    ChangedMember,
    ChangeRecord,
    add_unstored,
    encode_record,
    find_first_turn,
    find_unstored,
)
from chatserver.service.former_members import FormerMembers, former_of
from chatserver.service.inturn import InTurn
from chatserver.service.invitations import Invitations
from chatserver.service.turnover import ChangedChat, Turnover
from chatserver.telemetry.failpoints import failpoint

TRIES_MAX = 20
CHANGE_S = 10.0
HOLD_S = 2 * CHANGE_S  # a change that was noted so long ago has ended, one way or the other
WAIT_S_MAX = 0.2


class MemberRecord(Protocol):
    """A membership of the directory."""

    @property
    def role(self) -> Any: ...


class ChangingDirectory(Protocol):
    """The directory, as far as changes are decided on."""

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
    """What Redis knows of changes."""

    async def begin(self, chat: ChatId, hold_s: float) -> str: ...

    async def end(self, name: str) -> None: ...

    async def note_unstored(self, chat: ChatId) -> None: ...

    async def find_reference(self, chat: ChatId, sender: UserId, ref: Ref) -> FoundReference: ...


class _DoneByFormerMember(Exception):
    """The request was already done; its sender is no longer a member."""


class _Made(NamedTuple):
    """A change that is in both tiers, and has to be told."""

    record: ChangedChat
    note: str | None  # to be taken back then


class Membership:
    """The use case. One per process of workers."""

    def __init__(
        self,
        directory: ChangingDirectory,
        hot: HotNotes,
        turnover: Turnover,
        members_max: int,
        fanout_members_max: int = frames.MEMBERS_MAX,
        apart: Apartness | None = None,
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
        self._in_turn = InTurn(turnover.try_to_tell)
        self._members_max = members_max
        self._mids = MidSource()

    async def change(
        self, actor: UserId, frame: frames.AnyChange, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Do what a member asks for, and return what the chat is then.

        `is_host`: the host application asks, in the name of `actor`. Users to whom the actor is a
        stranger are invited, not added (`chatserver.service.invitations`).

        Guarantees:
            Idempotent: by (chat, sender, ref), for as long as a send's reference is remembered; and
            what is so already stays so. A retry by a former member succeeds, without members and
            name.
            From the return on, no message of one who was removed is committed (promise P7).
            Concurrency: of two changes at once the second is decided on what the first left; those
            of one process wait for each other.

        Raises:
            NotFound: no such chat, the actor is not a member, or a user does not exist.
            Forbidden: the actor's role does not allow it.
            BadRequest: the chat is a direct one, or a bound is reached.
            Conflict: `ref` was used before for something else.
            Unavailable: it may have been done.
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
            # Who has left may not know who is in it.
            return frames.ChatInfo(chat, info.kind, [], info.name)
        return info

    async def _find_asked(
        self, actor: UserId, frame: frames.AnyChange, *, is_host: bool
    ) -> set[UserId]:
        """Return whom an invitation of strangers is sent to."""
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
        """Return what members have to be told of."""
        digest = digest_of_request(frame)
        for number in range(TRIES_MAX):
            record, members = await self._read(
                chat, actor, frame, [] if invitation is None else [invitation.inviter]
            )
            # Redis is never more than one change behind: the last one goes there before the next.
            await self._turnover.bring(record)
            if await self._is_done(chat, actor, frame, digest):
                if actor not in members and not isinstance(frame, frames.Leave):
                    raise _DoneByFormerMember
                return None if record.change is None else _Made(record, None)
            roles: dict[UserId, Role] = {UserId(user): each.role for user, each in members.items()}
            if isinstance(frame, frames.Leave) and roles.get(actor) == "owner":
                # All of them, the oldest first: one of them is the next owner.
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
        """Return whether this request was done before; the chat is loaded if need be."""
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
        # As a load from the warm tier remembers it: by the entry, not by the request.
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
        """Return the changes if all who become members may be in one chat more."""
        if self._invitations is not None and changes:
            await self._invitations.require_room(list(changes))
        return changes

    async def _commit(
        self,
        record: ChangedChat,
        group: Group,
        members: Mapping[str, Any],
        actor: UserId,
        frame: frames.AnyChange,
        digest: str,
        changes: Changes,
        settings: Mapping[str, str | int],
    ) -> _Made | None:
        """Write a decided change to both tiers; None if another one came before."""
        chat = ChatId(record.chat)
        if any(role and user not in group.roles for user, role in changes.items()):
            await self._turnover.see_off(record, changes)
        note = await self._hot.begin(chat, HOLD_S)
        # The least seq at which they can join; the script says which it is.
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
                # The directory may not know yet that Redis lost the join and made it once more.
                first = head.joined.get(UserId(each.user), member.joined)
                former[each.user] = former_of(member, first, joined + index, each.mid, head.stored)
        change.version, change.after = record.version + 1, head.stored
        unstored, written = add_unstored(record, change, head), None
        # Without room it waits until the changes before it are stored.
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
        """Return until when the member may not write whom the request mutes; None: he may again."""
        if not isinstance(frame, frames.MuteMember):
            return {}
        if frame.mute_s is None:
            return {frame.user: 0}
        return {frame.user: math.ceil(self._clock.time() + frame.mute_s) if frame.mute_s else None}

    def _turn(self, record: ChangedChat, count: int) -> tuple[int, str]:
        """Return with which version a chat of so many became a large one, and what it turns now."""
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
