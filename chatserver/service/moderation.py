"""Blocking a user, reporting a message, and who is kept out of a chat.

Muting, banning and slow mode change a group, and are done as all changes of groups are, in
`chatserver.service.membership`. Blocking changes a direct chat without a word in it::

    note ─► directory: the block, the chat's row (version+1) ─► Redis: the chat's gate ─► clean up

A process that dies between the two has told nobody that it is done, and `workers.repair` finds the
note and sets the gate. From the gate on no commit takes a message of either of the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId, direct_chat_id
from chatserver.domain.inboxes import Place
from chatserver.domain.membership import NOT_A_MEMBER, Group, Reader
from chatserver.domain.moderation import BLOCKS_MAX
from chatserver.domain.text import parse_note
from chatserver.errors import BadRequest, NotFound, TooLarge
from chatserver.protocol import codec, frames, hooks

HOLD_S = 20.0
NO_MESSAGE = "seq: the chat has no such message"

Feed = Callable[[UserId, hooks.HookEvent], Awaitable[None]]


class Rows(Protocol):
    """Blocks, bans and reports in the directory."""

    async def put_block(self, user: str, other: str, now: float) -> None: ...

    async def delete_block(self, user: str, other: str) -> None: ...

    async def mark_chat(self, chat: str, blocker: str, *, is_blocked: bool) -> bool: ...

    async def find_blocked(self, user: str, others: list[str]) -> set[str]: ...

    async def list_blocks(self, user: str, after: str | None, limit: int) -> Sequence[Any]: ...

    async def list_bans(self, chat: str, after: str | None, limit: int) -> Sequence[Any]: ...

    async def put_report(
        self, chat: str, seq: int, reporter: str, reason: str, now: float
    ) -> bool: ...

    async def get_report(self, chat: str, seq: int, reporter: str) -> Any: ...

    async def resolve(self, report: Any, by: str, now: float) -> None: ...

    async def list_reports(self, chat: str, after: str | None, limit: int) -> Sequence[Any]: ...

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[Sequence[Any], str | None]: ...


class Users(Protocol):
    """Who there is."""

    async def get_user(self, user: str) -> Any: ...

    async def get_chat(self, chat: str) -> Any: ...


class Members(Protocol):
    """Who is in a chat."""

    async def read(self, chat: str, users: Sequence[str]) -> tuple[Any, Mapping[str, Any]]: ...


class Notes(Protocol):
    """What Redis knows of changes."""

    async def begin(self, chat: ChatId, hold_s: float) -> str: ...

    async def end(self, name: str) -> None: ...


class Gates(Protocol):
    """Brings to Redis what a chat's row says."""

    async def restrict(self, record: Any) -> None: ...

    async def describe(self, chat: ChatId) -> frames.ChatInfo: ...


class Apart(Protocol):
    """Who is apart from whom, in Redis."""

    async def part(self, user: UserId, other: UserId) -> None: ...

    async def join(self, user: UserId, other: UserId) -> None: ...


class Inboxes(Protocol):
    """Users' inboxes."""

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes
    ) -> list[Place]: ...


class Told(Protocol):
    """Tells devices."""

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None: ...


class Follows(Protocol):
    """Who follows whom."""

    async def part(self, user: str, other: str) -> None: ...


class Readers(Protocol):
    """Who may read what of a chat."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader: ...


class Moderation:
    """The use cases. One per process that may talk to the directory."""

    def __init__(
        self,
        rows: Rows,
        users: Users,
        members: Members,
        notes: Notes,
        gates: Gates,
        apart: Apart,
        readers: Readers,
        inboxes: Inboxes,
        told: Told,
        feed: Feed,
        clock: Clock,
        follows: Follows,
    ) -> None:
        self._rows = rows
        self._users = users
        self._members = members
        self._notes = notes
        self._gates = gates
        self._apart = apart
        self._readers = readers
        self._inboxes = inboxes
        self._told = told
        self._feed = feed
        self._clock = clock
        self._follows = follows

    # blocks

    async def block(self, user: UserId, other: UserId) -> None:
        """End direct messages and invitations between two users, both ways.

        Guarantees:
            Idempotent.
            From the return on no message of either is committed in their direct chat, and neither
            follows the other.

        Raises:
            BadRequest: the two are one.
            NotFound: there is no such user.
            TooLarge: the user blocks as many as one may.
            Unavailable: it may have been done.
        """
        if user == other:
            raise BadRequest("user: must be somebody else")
        try:
            await self._users.get_user(other)
        except NotFound:
            raise NotFound(f"{other}: there is no such user") from None
        if len(await self._rows.list_blocks(user, None, BLOCKS_MAX)) >= BLOCKS_MAX:
            raise TooLarge(f"user: at most {BLOCKS_MAX:,} users can be blocked")
        await self._rows.put_block(user, other, self._clock.time())
        await self._apart.part(user, other)
        await self._follows.part(user, other)
        await self._mark_chat(user, other, is_blocked=True)
        await self._tell("user.blocked", user, other)

    async def unblock(self, user: UserId, other: UserId) -> None:
        """End the user's own block; that of the other one stays. Idempotent."""
        if user == other:
            raise BadRequest("user: must be somebody else")
        await self._rows.delete_block(user, other)
        if not await self._rows.find_blocked(user, [other]):
            await self._apart.join(user, other)
        await self._mark_chat(user, other, is_blocked=False)
        await self._tell("user.unblocked", user, other)

    async def _mark_chat(self, user: UserId, other: UserId, *, is_blocked: bool) -> None:
        chat = direct_chat_id(user, other)
        note = await self._notes.begin(chat, HOLD_S)
        is_new = await self._rows.mark_chat(chat, user, is_blocked=is_blocked)
        try:
            record = await self._users.get_chat(chat)
        except NotFound:
            pass  # who opens it reads the blocks first
        else:
            await self._gates.restrict(record)
            if is_new:
                await self._tell_devices(user, chat, is_blocked=is_blocked)
        await self._notes.end(note)

    async def _tell_devices(self, user: UserId, chat: ChatId, *, is_blocked: bool) -> None:
        """Tell the devices of who blocked: nobody else is told that it was he."""
        info = await self._gates.describe(chat)
        if info.blocked == is_blocked:
            body = codec.chat_event_body(info)
            for place in await self._inboxes.append_event([user], chat, body):
                if place.appended:
                    self._told.nudge(place.user, place.seq, place.gateways)

    async def _tell(self, name: str, user: UserId, other: UserId) -> None:
        now = self._clock.time()
        data: dict[str, str | int] = {"user": user, "other": other}
        event_id = f"{name}.{user}.{other}.{int(now * 1000)}"
        await self._feed(user, hooks.HookEvent(event_id, name, int(now * 1e6), data=data))

    async def list_blocks(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.BlockedUser], str | None]:
        """Return a page of whom the user blocks, by id, and where the next one starts."""
        found = await self._rows.list_blocks(user, after, limit + 1)
        page = [frames.BlockedUser(each.user, each.since) for each in found[:limit]]
        return page, page[-1].user if len(found) > limit else None

    # reports

    async def report(self, user: UserId, chat: ChatId, seq: Seq, reason: str) -> None:
        """Keep a reader's report of a message. Idempotent: the first one of a reader stays.

        Raises:
            NotFound: no such chat or message, or none of the user's to read.
        """
        reason = parse_note(reason, "reason")
        reader = await self._readers.get_reader(chat, user)
        if seq < reader.first:
            reader = await self._readers.add_periods(chat, user, reader)
        if not reader.is_readable(seq):
            raise NotFound(NO_MESSAGE)
        now = self._clock.time()
        if await self._rows.put_report(chat, seq, user, reason, now):
            data: dict[str, str | int] = {
                "chat": chat,
                "seq": seq,
                "reporter": user,
                "reason": reason,
            }
            event_id = f"report.{chat}.{seq}.{user}"
            await self._feed(user, hooks.HookEvent(event_id, "report", int(now * 1e6), data=data))

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[list[Any], str | None]:
        """Return a page of open reports of all chats by time, and where the next starts."""
        found, following = await self._rows.list_open_reports(
            after, limit, is_newest_first=is_newest_first
        )
        return list(found), following

    async def list_reports(
        self, actor: UserId | None, chat: ChatId, after: str | None, limit: int
    ) -> tuple[list[Any], str | None]:
        """Return a page of a chat's reports, by seq; `actor` None is the host application.

        Raises:
            NotFound: no such chat, or the actor is not a member.
            Forbidden: the actor is neither owner nor admin.
        """
        await self._require_manager(actor, chat)
        found = await self._rows.list_reports(chat, after, limit)
        following = f"{found[-1].seq:020d}#{found[-1].reporter}" if len(found) == limit else None
        return list(found), following

    async def resolve(
        self, actor: UserId | None, by: str, chat: ChatId, seq: Seq, reporter: UserId
    ) -> None:
        """Note that somebody has looked at a report. Idempotent.

        Raises:
            NotFound: no such report, or chat, or the actor is not a member.
            Forbidden: the actor is neither owner nor admin.
        """
        await self._require_manager(actor, chat)
        report = await self._rows.get_report(chat, seq, reporter)
        await self._rows.resolve(report, by, self._clock.time())

    async def list_bans(
        self, actor: UserId | None, chat: ChatId, after: str | None, limit: int
    ) -> tuple[list[Any], str | None]:
        """Return a page of who may not come back to a chat; see `list_reports`."""
        await self._require_manager(actor, chat)
        found = await self._rows.list_bans(chat, after, limit)
        return list(found), found[-1].user if len(found) == limit else None

    async def _require_manager(self, actor: UserId | None, chat: ChatId) -> None:
        try:
            record, members = await self._members.read(chat, [actor] if actor else [])
        except NotFound:
            raise NotFound(NOT_A_MEMBER) from None
        if actor is not None:
            roles = {UserId(user): member.role for user, member in members.items()}
            Group(record.kind, record.joining, record.count, 0, roles).require_manager(actor)
