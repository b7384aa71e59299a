"""Blocks, reports, and the list of users banned from a chat.

Mutes, bans and slow mode are changes of a group and made like all others, by
`chatserver.service.membership.service`. A block changes a direct chat without an entry in it::

    marker ─► directory: the block, the chat's row (version+1) ─► Redis: write policy ─► clean up

A process that dies between the two stores has not reported success; `workers.repair` finds the
marker and applies the write policy. After that no commit accepts a message of either user.
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
from chatserver.protocol import codec, frames
from chatserver.protocol import webhook_messages as messages

HOLD_S = 20.0
NO_MESSAGE = "seq: the chat has no such message"

Feed = Callable[[UserId, messages.HookEvent], Awaitable[None]]


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
    """Users and chats in the directory."""

    async def get_user(self, user: str) -> Any: ...

    async def get_chat(self, chat: str) -> Any: ...


class Members(Protocol):
    """Members of chats."""

    async def read(self, chat: str, users: Sequence[str]) -> tuple[Any, Mapping[str, Any]]: ...


class Notes(Protocol):
    """Change markers in Redis."""

    async def begin(self, chat: ChatId, hold_s: float) -> str: ...

    async def end(self, name: str) -> None: ...


class ChatVersions(Protocol):
    """Applies the write policy of a chat's row to Redis."""

    async def restrict(self, record: Any) -> None: ...

    async def describe(self, chat: ChatId) -> frames.ChatInfo: ...


class BlockChecker(Protocol):
    """Block pairs in Redis."""

    async def part(self, user: UserId, other: UserId) -> None: ...

    async def join(self, user: UserId, other: UserId) -> None: ...


class Inboxes(Protocol):
    """Users' inboxes."""

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes
    ) -> list[Place]: ...


class DeviceNotifier(Protocol):
    """Sends notifications to devices."""

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None: ...


class Follows(Protocol):
    """Follow relations."""

    async def part(self, user: str, other: str) -> None: ...


class Readers(Protocol):
    """Read access of members."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader: ...


class Moderation:
    """Moderation use cases. One instance per process with access to the directory."""

    def __init__(
        self,
        rows: Rows,
        users: Users,
        members: Members,
        notes: Notes,
        gates: ChatVersions,
        apart: BlockChecker,
        readers: Readers,
        inboxes: Inboxes,
        told: DeviceNotifier,
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
        """Block a user: end direct messages and invitations between the two, in both directions.

        Guarantees:
            Idempotent.
            After it returns, no message of either is committed in their direct chat, and neither
            follows the other.

        Raises:
            BadRequest: both ids are the same.
            NotFound: there is no such user.
            TooLarge: the user has reached the limit of blocks.
            Unavailable: the block may have been made.
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
        """End the user's own block; a block by the other user stays. Idempotent."""
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
            pass  # the chat loader reads the blocks first
        else:
            await self._gates.restrict(record)
            if is_new:
                await self._tell_devices(user, chat, is_blocked=is_blocked)
        await self._notes.end(note)

    async def _tell_devices(self, user: UserId, chat: ChatId, *, is_blocked: bool) -> None:
        """Notify only the blocking user's devices: the direction of a block is private."""
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
        await self._feed(user, messages.HookEvent(event_id, name, int(now * 1e6), data=data))

    async def list_blocks(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.BlockedUser], str | None]:
        """Return a page of the users that the user blocks, by id, and where the next one starts."""
        found = await self._rows.list_blocks(user, after, limit + 1)
        page = [frames.BlockedUser(each.user, each.since) for each in found[:limit]]
        return page, page[-1].user if len(found) > limit else None

    # reports

    async def report(self, user: UserId, chat: ChatId, seq: Seq, reason: str) -> None:
        """Store a reader's report of a message. Idempotent: the first report of a reader stays.

        Raises:
            NotFound: no such chat or message, or the user may not read it.
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
            await self._feed(
                user, messages.HookEvent(event_id, "report", int(now * 1e6), data=data)
            )

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
        """Mark a report as resolved. Idempotent.

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
        """Return a page of the users banned from a chat; see `list_reports`."""
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
