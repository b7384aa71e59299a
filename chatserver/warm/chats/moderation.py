"""Blocks, bans and reports, in table `directory`.

| record          | `PK`       | `SK`                       | attributes                         |
|-----------------|------------|----------------------------|------------------------------------|
| `UserBlock`     | `u#<user>` | `block#<other>`            | `created`                          |
| `Ban`           | `c#<chat>` | `ban#<user>`               | `created author`                   |
| `MessageReport` | `c#<chat>` | `report#<seq>#<reporter>`  | `created reason? state`            |
|                 |            |                            | `resolved_by? expires_at?`         |
| link            | `u#<user>` | `reported#<chat>#<seq>`    | none: lists a user's reports       |
| line            | `reports`  | `<created>#<chat>#<seq>#…` | none: lists an open report         |

The item of a direct chat also lists which of its two users block the other (`blocked`), and its
`version` increases with each change to that list. So the chat's item is enough to load the chat
into Redis. In keys, `seq` and `created` have a fixed width, so that they sort numerically. Index
`by_member` inverts the keys and lists the users who block a user.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from chatserver.errors import NotFound
from chatserver.warm.chats.restriction_flag import mark_restricted
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr, Changes, Discard
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, MEMBER_INDEX
from chatserver.warm.schema.tables import DirectoryField as Field

BLOCK_PREFIX: Final = "block#"
AFTER_BLOCKS: Final = "block$"  # '$' follows '#'
BAN_PREFIX: Final = "ban#"
AFTER_BANS: Final = "ban$"
REPORT_PREFIX: Final = "report#"
AFTER_REPORTS: Final = "report$"
OPEN_REPORTS: Final = "reports"
OPEN: Final = "open"
RESOLVED: Final = "resolved"
KEEP_RESOLVED_S: Final = 90 * 86_400
BLOCKED_BY_MAX: Final = 5_000  # maximum number of a user's blockers that are loaded into Redis


def block_key(other: str) -> str:
    """Return the sort key of the item that records that a user blocks `other`."""
    return f"{BLOCK_PREFIX}{other}"


def ban_key(user: str) -> str:
    return f"{BAN_PREFIX}{user}"


class UserBlock(NamedTuple):
    """A blocked user, and when they were blocked (ms since 1970)."""

    user: str
    since: int


BLOCK: Final = Codec(UserBlock, "u#{owner}", "block#{user}", since=Field.CREATED)


@dataclasses.dataclass(frozen=True, slots=True)
class Ban:
    """A user who is not allowed to rejoin a chat."""

    chat: str
    user: str
    by: str
    created_ms: int


BAN: Final = Codec(Ban, "c#{chat}", "ban#{user}", created_ms=Field.CREATED, by=Field.AUTHOR)


@dataclasses.dataclass(frozen=True, slots=True)
class MessageReport:
    """A message reported to the moderators."""

    chat: str
    seq: int
    reporter: str
    created_ms: int
    reason: str = ""
    state: str = OPEN
    resolved_by: str | None = None

    @property
    def line_key(self) -> tuple[str, str]:
        """The key of the item that lists an open report."""
        return OPEN_REPORTS, f"{self.created_ms:020d}#{self.chat}#{self.seq:020d}#{self.reporter}"

    @property
    def link_key(self) -> tuple[str, str]:
        """The key of the item that lists a report under its reporter."""
        return f"u#{self.reporter}", f"reported#{self.chat}#{self.seq:020d}"


REPORT: Final = Codec(
    MessageReport,
    "c#{chat}",
    "report#{seq:020d}#{reporter}",
    created_ms=Field.CREATED,
    state=Field.STATE,
    reason=StoredField(Field.REASON, absent=""),
    resolved_by=Field.RESOLVED_BY,
)


class Moderation:
    """Repository of blocks, bans and reports. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)

    # Blocks.

    async def put_block(self, user: str, other: str, now: float) -> None:
        """Record that `user` blocks `other`. Idempotent: an existing block keeps its time."""
        await mark_restricted(self._table, user, other)
        item = BLOCK.encode(UserBlock(other, int(now * 1000)), owner=user)
        await try_write(self._table.put(item, if_=Attr(Field.PK).is_absent))

    async def delete_block(self, user: str, other: str) -> None:
        """Unblock `other` for `user`. Idempotent."""
        await self._table.delete(_block_row(user, other))

    async def mark_chat(self, chat: str, blocker: str, *, is_blocked: bool) -> bool:
        """Record in a direct chat's item whether `blocker` blocks the other user.

        Return False if the chat does not exist or its item already records this.
        """
        was_blocked = Attr(Field.BLOCKED).contains(blocker)
        change = Add({blocker}) if is_blocked else Discard({blocker})
        write = self._table.update(
            (f"c#{chat}", f"c#{chat}"),
            {Field.BLOCKED: change, Field.VERSION: Add(1)},
            if_=Attr(Field.VERSION).exists & (~was_blocked if is_blocked else was_blocked),
        )
        return await try_write(write)

    async def find_blocked(self, user: str, others: list[str]) -> set[str]:
        """Return which of `others` block `user` or are blocked by `user`.

        Strongly consistent.
        """
        keys = [_block_row(user, other) for other in others]
        keys += [_block_row(other, user) for other in others]
        blocked = set()
        for item in await self._table.get_items(keys):
            owner = item[Field.PK]["S"].removeprefix("u#")
            blocked |= {owner, item[Field.SK]["S"].removeprefix(BLOCK_PREFIX)}
        return blocked - {user}

    async def list_between(self, user: str, other: str) -> list[str]:
        """Return which of two users block the other: none, one or both. Strongly consistent."""
        items = await self._table.get_items([_block_row(user, other), _block_row(other, user)])
        return [item[Field.PK]["S"].removeprefix("u#") for item in items]

    async def list_blocks(self, user: str, after: str | None, limit: int) -> list[UserBlock]:
        """Return `user`'s blocks after user id `after`, sorted by id. Strongly consistent."""
        span = Span(
            DIRECTORY, f"u#{user}", between=(_lower_bound(BLOCK_PREFIX, after), AFTER_BLOCKS)
        )
        return [BLOCK.decode(row) for row in await self._table.query(span, limit=limit)]

    async def list_blockers(self, user: str) -> list[str]:
        """Return up to `BLOCKED_BY_MAX` users who block `user`, by id. Eventually consistent."""
        blockers: list[str] = []
        async for rows in self._table.iter_query(
            Span(DIRECTORY, block_key(user), MEMBER_INDEX), limit=1000
        ):
            blockers += [row[Field.PK]["S"].removeprefix("u#") for row in rows]
            if len(blockers) >= BLOCKED_BY_MAX:
                break
        return blockers[:BLOCKED_BY_MAX]

    # Bans.

    async def delete_ban(self, chat: str, user: str) -> None:
        await self._table.delete(BAN.key(chat=chat, user=user))

    async def list_bans(self, chat: str, after: str | None, limit: int) -> list[Ban]:
        """Return a chat's bans, sorted by user id, starting after `after`. Strongly consistent."""
        span = Span(DIRECTORY, f"c#{chat}", between=(_lower_bound(BAN_PREFIX, after), AFTER_BANS))
        return [BAN.decode(row) for row in await self._table.query(span, limit=limit)]

    # Reports.

    async def put_report(self, chat: str, seq: int, reporter: str, reason: str, now: float) -> bool:
        """Store a report; return False if this reporter has already reported the message."""
        report = MessageReport(chat, seq, reporter, int(now * 1000), reason)
        actions = [
            self._table.put_action(REPORT.encode(report), if_=Attr(Field.PK).is_absent),
            self._table.put_action(report.line_key),
            self._table.put_action(report.link_key),
        ]
        return await try_write(self._client.transact(actions))

    async def get_report(self, chat: str, seq: int, reporter: str) -> MessageReport:
        """Return a report. Strongly consistent. Raises NotFound."""
        item = await self._table.find(REPORT.key(chat=chat, seq=seq, reporter=reporter))
        if item is None:
            raise NotFound("report: does not exist")
        return REPORT.decode(item)

    async def resolve(self, report: MessageReport, resolver: str, now: float) -> None:
        """Mark a report as resolved. Idempotent: the first resolution is kept."""
        changes: Changes = {
            Field.STATE: RESOLVED,
            Field.RESOLVED_BY: resolver,
            Field.EXPIRES_AT: int(now) + KEEP_RESOLVED_S,
        }
        key = REPORT.key(chat=report.chat, seq=report.seq, reporter=report.reporter)
        actions = [
            self._table.update_action(key, changes, if_=Attr(Field.STATE) == OPEN),
            self._table.delete_action(report.line_key),
        ]
        await try_write(self._client.transact(actions))

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[list[MessageReport], str | None]:
        """Return `(reports, after)`: open reports from all chats, by time, and the next `after`.

        Guarantees:
            Strongly consistent. A page is short only if reports were resolved while it was read.
            Cost: one Query for the keys and one BatchGetItem for the reports.
        """
        low, high = "0", ":"  # bounds of all sort keys, which begin with a digit
        if after is not None:
            low, high = ("0", after) if is_newest_first else (f"{after}!", ":")
        span = Span(DIRECTORY, OPEN_REPORTS, between=(low, high))
        # Bounds are inclusive: in newest-first order, the item with sort key `after` is read again
        # and dropped.
        extra = 2 if is_newest_first and after is not None else 1  # one shows if there are more
        rows = await self._table.query(span, limit=limit + extra, is_newest_first=is_newest_first)
        found = [position for row in rows if (position := row[Field.SK]["S"]) != after]
        positions, has_more = found[:limit], len(found) > limit
        keys: list[Key] = []
        for position in positions:
            _, chat, seq, reporter = position.split("#")
            keys.append(REPORT.key(chat=chat, seq=int(seq), reporter=reporter))
        reports = [REPORT.decode(item) for item in await self._table.get_items(keys)]
        by_position = {report.line_key[1]: report for report in reports}
        open_reports = [by_position[position] for position in positions if position in by_position]
        return open_reports, positions[-1] if has_more else None

    async def list_reports(self, chat: str, after: str | None, limit: int) -> list[MessageReport]:
        """Return a chat's open and resolved reports after `after`, sorted by seq."""
        span = Span(
            DIRECTORY, f"c#{chat}", between=(_lower_bound(REPORT_PREFIX, after), AFTER_REPORTS)
        )
        return [REPORT.decode(row) for row in await self._table.query(span, limit=limit)]


def _block_row(user: str, other: str) -> Key:
    return f"u#{user}", block_key(other)


def _lower_bound(prefix: str, after: str | None) -> str:
    """Return the lowest possible sort key with `prefix` that follows `after`."""
    return prefix if after is None else f"{prefix}{after}!"
