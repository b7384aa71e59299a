"""Invitations: a stranger cannot add users to a group without their consent.

An inviter is not a stranger to users who have sent them direct messages, follow them, or have
accepted an earlier invitation from them. All other users get an invitation. The group appears in
their chats and inbox only after they accept, which is a membership change (`group_membership`).
"""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Collection
from typing import Literal, Protocol

import attrs

from chatserver.domain.access.logins import NEW_ACCOUNT_S
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.invitation_rules import (
    INVITATION_LIFETIME_S,
    INVITATIONS_DECLINED_MAX,
    INVITATIONS_FROM_INVITER_MAX,
    Invitation,
    ListedKind,
    Policy,
)
from chatserver.errors import BadRequest, NotFound, RateLimited, TooLarge
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.answered_direct_chats import AnsweredDirectChats
from chatserver.hot.users.daily_limits import DailyLimit
from chatserver.hot.users.group_quotas import GroupQuotas
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.stored_invitations import StoredInvitations

IN_FLIGHT_MAX = 16  # maximum users that one request invites concurrently
NO_INVITATION = "chat: you have no invitation, or it has expired"


class FollowGraph(Protocol):
    """Follow relations between users; the `social` feature implements this.

    Raises:
        Unavailable: DynamoDB does not respond.
    """

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]:
        """Return the users among `others` who follow `user`."""

    async def remove_between(self, user: str, other: str) -> None:
        """Delete the follow relations between two users, in both directions. Idempotent."""


@attrs.define(eq=False, repr=False, kw_only=True)
class GroupInvitations:
    """Invitation use cases, and the limits on joining groups and on new contacts."""

    _rows: StoredInvitations
    _follows: FollowGraph
    _direct_chats: AnsweredDirectChats
    _quotas: GroupQuotas
    _contacts: DailyLimit
    _inboxes: Inboxes
    _devices: RemoteDelivery
    _policy: Policy
    _pending_max: int
    _chats_max: int
    _clock: Clock

    async def find_strangers(
        self, inviter: UserId, users: Collection[UserId], *, is_host: bool
    ) -> set[UserId]:
        """Return the users among `users` whom `inviter` may invite but not add directly.

        The host application (`is_host`) may add everyone.

        Guarantees:
            Cost: a BatchGetItem on two tables per 100 users. For users who do not follow the
                inviter and have accepted no invitation from them, also one Redis call each and
                a BatchGetItem per 100 users.
        """
        if is_host or self._policy == "never" or not users:
            return set()
        if self._policy == "always":
            return set(users)
        trusting, followers = await asyncio.gather(
            self._rows.find_trusting(inviter, users), self._follows.find_followers(inviter, users)
        )
        unknown = [user for user in users if user not in trusting and user not in followers]
        return set(unknown) - await self._direct_chats.find_answered(inviter, unknown)

    async def require_group_quota(self, users: Collection[UserId]) -> None:
        """Check that each user may join one more group.

        Guarantees:
            Cost: one Redis call per partition. A user's groups are counted in DynamoDB once a day,
                and whenever a user who has reached the limit joins a group.

        Raises:
            BadRequest: a user is already in `chats.per_user_max` groups; the message names the
                user.
        """
        uncounted = list(await self._quotas.consume(users))
        # Groups are counted in batches of users, so that a retry after a timeout continues after
        # the completed batches.
        for start in range(0, len(uncounted), IN_FLIGHT_MAX):
            await self._count_groups(uncounted[start : start + IN_FLIGHT_MAX])

    async def _count_groups(self, users: Collection[UserId]) -> None:
        counts = await asyncio.gather(*(self._count_chats(user, "group") for user in users))
        remaining = {
            user: self._chats_max - 1 - count for user, count in zip(users, counts, strict=True)
        }
        await self._quotas.put({user: max(0, quota) for user, quota in remaining.items()})
        for user, quota in remaining.items():
            if quota < 0:
                raise BadRequest(
                    f"user: at most {self._chats_max:,} groups, the maximum (chats.per_user_max); "
                    f"{user} must leave one first"
                )

    async def require_direct_chat_quota(self, user: UserId) -> None:
        """Check that the user may have one more direct chat.

        Raises:
            BadRequest: the user already has `chats.per_user_max` direct chats.
        """
        if await self._count_chats(user, "direct") >= self._chats_max:
            raise BadRequest(
                f"you have {self._chats_max:,} direct chats, the maximum (chats.per_user_max)"
            )

    async def _count_chats(self, user: UserId, kind: ListedKind) -> int:
        return await self._rows.count_chats(user, kind, self._chats_max)

    async def require_contact(self, user: UserId, other: UserId) -> None:
        """Check that the user may start a direct chat with `other`, who may be a stranger.

        Chats with strangers count against a daily limit.

        Raises:
            RateLimited: the user has reached `chats.new_contacts_per_day`.
        """
        if await self.find_strangers(user, [other], is_host=False):
            wait_ms = await self._contacts.consume(user)
            if wait_ms:
                raise RateLimited(
                    "too many new direct chats with strangers (chats.new_contacts_per_day); "
                    "try again later",
                    retry_after_ms=wait_ms,
                )

    async def invite(
        self,
        inviter: UserId,
        chat: ChatId,
        name: str | None,
        role: Literal["admin", "member"],
        users: Collection[UserId],
    ) -> None:
        """Invite users to a group.

        Guarantees:
            Idempotent: one invitation per user and chat; a declined invitation is not sent again
            before it expires.
            Bounded: at most `INVITATIONS_FROM_INVITER_MAX` pending or declined invitations per
                inviter and user. If a user has the maximum number of pending invitations, one of
                them or the new one is dropped: first one from a new account, then one from the
                inviter with the most pending invitations, then the new one. So many accounts cannot
                remove earlier invitations.

        Raises:
            TooLarge: a user has `INVITATIONS_FROM_INVITER_MAX` invitations from the inviter; the
                message names the user.
        """
        await map_concurrently(
            functools.partial(self._invite_one, inviter, chat, name, role),
            users,
            in_flight_max=IN_FLIGHT_MAX,
            name="invite",
        )

    async def _invite_one(
        self,
        inviter: UserId,
        chat: ChatId,
        name: str | None,
        role: Literal["admin", "member"],
        user: UserId,
    ) -> None:
        now_s = self._clock.time()
        rows_max = self._pending_max + INVITATIONS_DECLINED_MAX
        existing, _ = await self._rows.list_for(user, None, rows_max, now_s)
        if any(each.chat == chat for each in existing):
            return
        if sum(each.inviter == inviter for each in existing) >= INVITATIONS_FROM_INVITER_MAX:
            raise TooLarge(
                f"{user} has {INVITATIONS_FROM_INVITER_MAX} pending invitations from you; "
                "wait for a response"
            )
        pending = [each for each in existing if each.state == "pending"]
        declined = [each for each in existing if each.state != "pending"]
        if len(pending) >= self._pending_max:
            dropped = await self._find_dropped(pending, inviter, now_s)
            if dropped is None:
                return
            await self._rows.delete(user, dropped.chat)
        if len(declined) >= INVITATIONS_DECLINED_MAX:
            oldest = min(declined, key=lambda each: each.created_ms)
            await self._rows.delete(user, oldest.chat)
        expires_s = int(now_s) + INVITATION_LIFETIME_S
        invitation = Invitation(
            user=user,
            chat=chat,
            inviter=inviter,
            role=role,
            name=name,
            created_ms=int(now_s * 1000),
            expires_s=expires_s,
        )
        if await self._rows.put(invitation, now_s):
            (gateways,) = await self._inboxes.list_gateways([user])
            signal = frames.InvitationSignal("invitation", chat, inviter)
            self._devices.send_signal(user, codec.encode(signal), gateways)

    async def _find_dropped(
        self, pending: Collection[Invitation], inviter: UserId, now_s: float
    ) -> Invitation | None:
        """Return the pending invitation to drop for a new one; None: drop the new one."""
        counts = collections.Counter([inviter, *(each.inviter for each in pending)])
        since_ms = int((now_s - NEW_ACCOUNT_S) * 1000)
        new_accounts = await self._rows.find_created_since(counts, since_ms)

        def rank(name: str) -> tuple[bool, int]:
            return name in new_accounts, counts[name]

        dropped = max(pending, key=lambda each: (rank(each.inviter), each.created_ms))
        return dropped if rank(dropped.inviter) > rank(inviter) else None

    async def list_pending(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.InvitationInfo], str | None]:
        """Return `(invitations, next)`: a page of the user's invitations, sorted by chat.

        `next` is the `after` for the next page, or None. Declined and expired invitations are
        omitted, so a page may have fewer than `limit` although there is a next page.
        """
        page, next_after = await self._rows.list_for(user, after, limit, self._clock.time())
        pending = [
            frames.InvitationInfo(
                invitation.chat,
                invitation.inviter,
                invitation.created_ms,
                invitation.expires_s,
                invitation.name,
            )
            for invitation in page
            if invitation.state == "pending"
        ]
        return pending, next_after

    async def get(self, user: UserId, chat: ChatId) -> Invitation:
        """Return the user's pending invitation to the chat. Raises NotFound."""
        invitation = await self._rows.find(user, chat, self._clock.time())
        if invitation is None:
            raise NotFound(NO_INVITATION)
        return invitation

    async def close(self, user: UserId, chat: ChatId, inviter: str | None) -> None:
        """Delete an accepted invitation. `inviter` may add the user to other groups from now on."""
        if inviter is not None:
            await self._rows.record_trust(user, inviter, self._clock.time())
        await self._rows.delete(user, chat)

    async def decline(self, user: UserId, chat: ChatId) -> None:
        """Decline an invitation without notifying anyone. Idempotent."""
        await self._rows.decline(user, chat)
