"""Invitations: users decide whether a stranger may add them to a group.

An inviter is no stranger to users who have written to them in their direct chat, who follow them,
or who have accepted an earlier invitation of theirs. Everyone else is asked: an invitation adds
nothing to their chats and their inbox until they accept it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.domain.invitations import Invitation, ListedKind, Policy
from chatserver.errors import BadRequest, NotFound, RateLimited, TooLarge
from chatserver.protocol import codec, frames

PENDING_MAX = 100  # invitations of one user; the oldest makes room
LIFETIME_S = 30 * 86_400
FROM_ONE_MAX = 5  # pending and declined ones of one inviter, per invited user
AT_ONCE_MAX = 16  # users invited concurrently by one request
NO_INVITATION = "chat: you have no invitation to it, or it has expired"


class Rows(Protocol):
    """Invitations and trust in the directory."""

    async def list_for(
        self, user: str, after: str | None, limit: int, now_s: float
    ) -> list[Invitation]: ...

    async def find(self, user: str, chat: str, now_s: float) -> Invitation | None: ...

    async def put(self, invitation: Invitation, now_s: float) -> bool: ...

    async def decline(self, user: str, chat: str) -> None: ...

    async def delete(self, user: str, chat: str) -> None: ...

    async def trust(self, user: str, inviter: str, now_s: float) -> None: ...

    async def find_trusting(self, inviter: str, users: Collection[str]) -> set[str]: ...

    async def count_chats(self, user: str, kind: ListedKind, limit: int) -> int: ...


class Graph(Protocol):
    """Read access to follow relations."""

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]: ...


class AnsweredChats(Protocol):
    """Direct chats that were answered."""

    async def find_answered(self, user: UserId, others: Collection[UserId]) -> set[UserId]: ...


class GroupQuotas(Protocol):
    """The number of groups that users may still join."""

    async def take(self, users: Collection[UserId]) -> set[UserId]: ...

    async def put(self, rooms: Mapping[UserId, int]) -> None: ...


class Contacts(Protocol):
    """New contacts of users, counted by day."""

    async def take(self, user: UserId) -> int: ...


class Devices(Protocol):
    """Gateways to which users are connected."""

    async def list_gateways(self, users: Sequence[UserId]) -> list[tuple[GatewayId, ...]]: ...


class Signals(Protocol):
    """Sends signals to devices."""

    def signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None: ...


class Invitations:
    """The use cases."""

    def __init__(
        self,
        *,
        rows: Rows,
        graph: Graph,
        directs: AnsweredChats,
        rooms: GroupQuotas,
        contacts: Contacts,
        devices: Devices,
        signals: Signals,
        policy: Policy,
        pending_max: int,
        chats_max: int,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._graph = graph
        self._directs = directs
        self._rooms = rooms
        self._contacts = contacts
        self._devices = devices
        self._signals = signals
        self._policy = policy
        self._pending_max = pending_max
        self._chats_max = chats_max
        self._clock = clock

    async def find_strangers(
        self, inviter: UserId, users: Collection[UserId], *, is_host: bool
    ) -> set[UserId]:
        """Return those of `users` whom `inviter` may invite but not add.

        The host application (`is_host`) may add everyone.

        Guarantees:
            Cost: a BatchGetItem of two tables per 100 users; one Redis call for each user who is no
            follower and does not trust the inviter, and a BatchGetItem per 100 of them.
        """
        if is_host or self._policy == "never" or not users:
            return set()
        if self._policy == "always":
            return set(users)
        trusting, followers = await asyncio.gather(
            self._rows.find_trusting(inviter, users), self._graph.find_followers(inviter, users)
        )
        unknown = [user for user in users if user not in trusting and user not in followers]
        return set(unknown) - await self._directs.find_answered(inviter, unknown)

    async def require_room(self, users: Collection[UserId]) -> None:
        """Check that users may join one more group.

        Guarantees:
            Cost: one Redis call for each partition. The groups of a user are counted in DynamoDB
            once a day, and at each join of a user who has reached the limit.

        Raises:
            BadRequest: a user is in `chats.per_user_max` groups; the message names them.
        """
        uncounted = list(await self._rooms.take(users))
        # In batches, so that a request that exceeds its deadline leaves less to count.
        for at in range(0, len(uncounted), AT_ONCE_MAX):
            await self._count_groups(uncounted[at : at + AT_ONCE_MAX])

    async def _count_groups(self, users: Collection[UserId]) -> None:
        counts = await asyncio.gather(*(self._count(user, "group") for user in users))
        rooms = {
            user: self._chats_max - 1 - count for user, count in zip(users, counts, strict=True)
        }
        await self._rooms.put({user: max(0, room) for user, room in rooms.items()})
        for user, room in rooms.items():
            if room < 0:
                raise BadRequest(
                    f"{user}: is in {self._chats_max:,} groups, which is the most "
                    "(chats.per_user_max); they have to leave one first"
                )

    async def require_direct_room(self, user: UserId) -> None:
        """Check that a user may have one more direct chat.

        Raises:
            BadRequest: the user has `chats.per_user_max` of them.
        """
        if await self._count(user, "direct") >= self._chats_max:
            raise BadRequest(
                f"you have {self._chats_max:,} direct chats, which is the most (chats.per_user_max)"
            )

    async def _count(self, user: UserId, kind: ListedKind) -> int:
        return await self._rows.count_chats(user, kind, self._chats_max)

    async def require_contact(self, user: UserId, other: UserId) -> None:
        """Count a new direct chat with a stranger against the daily limit.

        Raises:
            RateLimited: the user has reached `chats.new_contacts_per_day`.
        """
        if await self.find_strangers(user, [other], is_host=False):
            wait_ms = await self._contacts.take(user)
            if wait_ms:
                raise RateLimited(
                    "too many direct chats with strangers (chats.new_contacts_per_day)",
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
            Idempotent: one invitation per user and chat; a declined one is not sent again before it
            expires.
            Bounded: `FROM_ONE_MAX` per inviter and user. Of `PENDING_MAX` pending ones of
            a user, the oldest is replaced.

        Raises:
            TooLarge: a user has the maximum number of invitations of the inviter; it names the
            user.
        """
        slots = asyncio.Semaphore(AT_ONCE_MAX)

        async def ask(user: UserId) -> None:
            async with slots:
                await self._invite_one(inviter, chat, name, role, user)

        await asyncio.gather(*map(ask, users))

    async def _invite_one(
        self,
        inviter: UserId,
        chat: ChatId,
        name: str | None,
        role: Literal["admin", "member"],
        user: UserId,
    ) -> None:
        now_s = self._clock.time()
        known = await self._rows.list_for(user, None, 2 * self._pending_max, now_s)
        if any(each.chat == chat for each in known):
            return
        if sum(each.inviter == inviter for each in known) >= FROM_ONE_MAX:
            raise TooLarge(
                f"{user}: has {FROM_ONE_MAX} invitations of yours; wait until they are answered"
            )
        if len(known) >= self._pending_max:
            await self._rows.delete(user, min(known, key=lambda each: each.created_ms).chat)
        expires_s = int(now_s) + LIFETIME_S
        made = Invitation(user, chat, inviter, role, name, int(now_s * 1000), expires_s)
        if await self._rows.put(made, now_s):
            (gateways,) = await self._devices.list_gateways([user])
            signal = frames.InvitationSignal("invitation", chat, inviter)
            self._signals.signal(user, codec.encode(signal), gateways)

    async def list_pending(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.InvitationInfo], str | None]:
        """Return a page of a user's invitations, by chat, and where the next one starts."""
        found = await self._rows.list_for(user, after, limit + 1, self._clock.time())
        page = found[:limit]
        shown = [
            frames.InvitationInfo(
                each.chat, each.inviter, each.created_ms, each.expires_s, each.name
            )
            for each in page
            if each.state == "pending"
        ]
        return shown, page[-1].chat if len(found) > limit else None

    async def get(self, user: UserId, chat: ChatId) -> Invitation:
        """Return a user's pending invitation. Raises NotFound."""
        found = await self._rows.find(user, chat, self._clock.time())
        if found is None:
            raise NotFound(NO_INVITATION)
        return found

    async def close(self, user: UserId, chat: ChatId, inviter: str | None) -> None:
        """Delete an accepted invitation; its author is trusted from now on."""
        if inviter is not None:
            await self._rows.trust(user, inviter, self._clock.time())
        await self._rows.delete(user, chat)

    async def decline(self, user: UserId, chat: ChatId) -> None:
        """Decline an invitation without notifying anyone. Idempotent."""
        await self._rows.decline(user, chat)
