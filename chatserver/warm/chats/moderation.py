"""Blocks, bans and reports, in table `directory`.

| record   | `PK`        | `SK`                       | attributes                              |
|----------|-------------|----------------------------|-----------------------------------------|
| `Block`  | `u#<user>`  | `block#<other>`            | `created`                               |
| `Ban`    | `c#<chat>`  | `ban#<user>`               | `created author`                        |
| `Report` | `c#<chat>`  | `report#<seq>#<reporter>`  | `created reason? state`                 |
|          |             |                            | `resolved_by? expires_at?`              |
| link     | `u#<user>`  | `reported#<chat>#<seq>`    | none: lists a user's reports            |
| line     | `reports`   | `<created>#<chat>#<seq>#…` | none: lists an open report              |

The item of a direct chat also lists which of its two users block the other (`blocked`), and its
`version` increases with each change to that list. So the chat's item is enough to load the chat
into Redis. In keys, `seq` and `created` have a fixed width, so that they sort numerically. Index
`by_member` inverts the keys and lists the users who block a user.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.errors import CorruptData, NotFound
from chatserver.warm.chats.restriction_flag import mark_restricted
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Span
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


class Block(NamedTuple):
    """A blocked user, and when they were blocked (ms since 1970)."""

    user: str
    since: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ban:
    """A user who is not allowed to rejoin a chat."""

    chat: str
    user: str
    by: str
    created_ms: int

    def encode(self) -> Item:
        return {
            Field.PK: {"S": f"c#{self.chat}"},
            Field.SK: {"S": ban_key(self.user)},
            Field.CREATED: {"N": str(self.created_ms)},
            Field.AUTHOR: {"S": self.by},
        }

    @classmethod
    def decode(cls, item: Item) -> Ban:
        """Decode a ban. Raises CorruptData."""
        try:
            return cls(
                item[Field.PK]["S"].removeprefix("c#"),
                item[Field.SK]["S"].removeprefix(BAN_PREFIX),
                item[Field.AUTHOR]["S"],
                int(item[Field.CREATED]["N"]),
            )
        except (KeyError, ValueError) as exc:
            raise CorruptData(f"table directory: {item.get(Field.PK)} has an invalid ban") from exc


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A message reported to the moderators."""

    chat: str
    seq: int
    reporter: str
    created_ms: int
    reason: str = ""
    state: str = OPEN
    resolved_by: str | None = None

    @property
    def sort_key(self) -> str:
        return f"{REPORT_PREFIX}{self.seq:020d}#{self.reporter}"

    @property
    def line_key(self) -> Item:
        """The key of the item that lists an open report."""
        sort = f"{self.created_ms:020d}#{self.chat}#{self.seq:020d}#{self.reporter}"
        return {Field.PK: {"S": OPEN_REPORTS}, Field.SK: {"S": sort}}

    @property
    def link_key(self) -> Item:
        """The key of the item that lists a report under its reporter."""
        sort = f"reported#{self.chat}#{self.seq:020d}"
        return {Field.PK: {"S": f"u#{self.reporter}"}, Field.SK: {"S": sort}}

    def encode(self) -> Item:
        """Encode an open report as an item."""
        item: Item = {
            Field.PK: {"S": f"c#{self.chat}"},
            Field.SK: {"S": self.sort_key},
            Field.CREATED: {"N": str(self.created_ms)},
            Field.STATE: {"S": self.state},
        }
        if self.reason:
            item[Field.REASON] = {"S": self.reason}
        return item

    @classmethod
    def decode(cls, item: Item) -> Report:
        """Decode a report. Raises CorruptData."""
        try:
            _, seq, reporter = item[Field.SK]["S"].split("#")
            resolver = item.get(Field.RESOLVED_BY)
            return cls(
                item[Field.PK]["S"].removeprefix("c#"),
                int(seq),
                reporter,
                int(item[Field.CREATED]["N"]),
                item.get(Field.REASON, {"S": ""})["S"],
                item[Field.STATE]["S"],
                resolver["S"] if resolver else None,
            )
        except (KeyError, ValueError) as exc:
            partition_key = item.get(Field.PK)
            raise CorruptData(f"table directory: {partition_key} has an invalid report") from exc


class Moderation:
    """Repository of blocks, bans and reports. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    # Blocks.

    async def put_block(self, user: str, other: str, now: float) -> None:
        """Record that `user` blocks `other`. Idempotent: an existing block keeps its time."""
        await mark_restricted(self._client, self._table, user, other)
        item: Item = self._block_row(user, other) | {Field.CREATED: {"N": str(int(now * 1000))}}
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("put_item", request)

    async def delete_block(self, user: str, other: str) -> None:
        """Unblock `other` for `user`. Idempotent."""
        request = {"TableName": self._table, "Key": self._block_row(user, other)}
        await self._client.call("delete_item", request)

    async def mark_chat(self, chat: str, blocker: str, *, is_blocked: bool) -> bool:
        """Record in a direct chat's item whether `blocker` blocks the other user.

        Return False if the chat does not exist or its item already records this.
        """
        condition = "contains(#blocked, :who)"
        request = {
            "TableName": self._table,
            "Key": {Field.PK: {"S": f"c#{chat}"}, Field.SK: {"S": f"c#{chat}"}},
            "UpdateExpression": ("ADD" if is_blocked else "DELETE") + " #blocked :set "
            "SET #version = #version + :one",
            "ConditionExpression": "attribute_exists(#pk) AND "
            + (f"NOT {condition}" if is_blocked else condition),
            "ExpressionAttributeNames": {
                "#pk": Field.PK,
                "#blocked": Field.BLOCKED,
                "#version": Field.VERSION,
            },
            "ExpressionAttributeValues": {
                ":set": {"SS": [blocker]},
                ":who": {"S": blocker},
                ":one": {"N": "1"},
            },
        }
        return await write_conditionally(self._client, "update_item", request)

    async def find_blocked(self, user: str, others: list[str]) -> set[str]:
        """Return which of `others` block `user` or are blocked by `user`.

        Strongly consistent.
        """
        keys = [self._block_row(user, other) for other in others]
        keys += [self._block_row(other, user) for other in others]
        blocked = set()
        for item in await get_items(self._client, self._table, keys):
            owner = item[Field.PK]["S"].removeprefix("u#")
            blocked |= {owner, item[Field.SK]["S"].removeprefix(BLOCK_PREFIX)}
        return blocked - {user}

    async def list_between(self, user: str, other: str) -> list[str]:
        """Return which of two users block the other: none, one or both. Strongly consistent."""
        keys = [self._block_row(user, other), self._block_row(other, user)]
        items = await get_items(self._client, self._table, keys)
        return [item[Field.PK]["S"].removeprefix("u#") for item in items]

    async def list_blocks(self, user: str, after: str | None, limit: int) -> list[Block]:
        """Return `user`'s blocks after user id `after`, sorted by id. Strongly consistent."""
        span = Span(
            DIRECTORY, f"u#{user}", between=(_lower_bound(BLOCK_PREFIX, after), AFTER_BLOCKS)
        )
        return [
            Block(
                row[Field.SK]["S"].removeprefix(BLOCK_PREFIX),
                int(row[Field.CREATED]["N"]),
            )
            for row in await self._query(span, limit)
        ]

    async def list_blockers(self, user: str) -> list[str]:
        """Return up to `BLOCKED_BY_MAX` users who block `user`, by id. Eventually consistent."""
        span = Span(DIRECTORY, block_key(user), MEMBER_INDEX)
        request: dict[str, Any] = {**span.query(self._settings), "Limit": 1000}
        blockers: list[str] = []
        while len(blockers) < BLOCKED_BY_MAX:
            response = await self._client.call("query", request)
            blockers += [row[Field.PK]["S"].removeprefix("u#") for row in response["Items"]]
            if (last := response.get("LastEvaluatedKey")) is None:
                break
            request["ExclusiveStartKey"] = last
        return blockers[:BLOCKED_BY_MAX]

    # Bans.

    async def delete_ban(self, chat: str, user: str) -> None:
        key = {Field.PK: {"S": f"c#{chat}"}, Field.SK: {"S": ban_key(user)}}
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def list_bans(self, chat: str, after: str | None, limit: int) -> list[Ban]:
        """Return a chat's bans, sorted by user id, starting after `after`. Strongly consistent."""
        span = Span(DIRECTORY, f"c#{chat}", between=(_lower_bound(BAN_PREFIX, after), AFTER_BANS))
        return [Ban.decode(row) for row in await self._query(span, limit)]

    # Reports.

    async def put_report(self, chat: str, seq: int, reporter: str, reason: str, now: float) -> bool:
        """Store a report; return False if this reporter has already reported the message."""
        report = Report(chat, seq, reporter, int(now * 1000), reason)
        put = {
            "TableName": self._table,
            "Item": report.encode(),
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        line = {"TableName": self._table, "Item": report.line_key}
        link = {"TableName": self._table, "Item": report.link_key}
        actions = [{"Put": put}, {"Put": line}, {"Put": link}]
        return await write_conditionally(
            self._client, "transact_write_items", {"TransactItems": actions}
        )

    async def get_report(self, chat: str, seq: int, reporter: str) -> Report:
        """Return a report. Strongly consistent. Raises NotFound."""
        item = await find_item(
            self._client,
            self._table,
            {
                Field.PK: {"S": f"c#{chat}"},
                Field.SK: {"S": f"{REPORT_PREFIX}{seq:020d}#{reporter}"},
            },
        )
        if item is None:
            raise NotFound("report: does not exist")
        return Report.decode(item)

    async def resolve(self, report: Report, resolver: str, now: float) -> None:
        """Mark a report as resolved. Idempotent: the first resolution is kept."""
        update = {
            "TableName": self._table,
            "Key": {Field.PK: {"S": f"c#{report.chat}"}, Field.SK: {"S": report.sort_key}},
            "UpdateExpression": "SET #state = :resolved, #by = :by, #ends = :ends",
            "ConditionExpression": "#state = :open",
            "ExpressionAttributeNames": {
                "#state": Field.STATE,
                "#by": Field.RESOLVED_BY,
                "#ends": Field.EXPIRES_AT,
            },
            "ExpressionAttributeValues": {
                ":resolved": {"S": RESOLVED},
                ":open": {"S": OPEN},
                ":by": {"S": resolver},
                ":ends": {"N": str(int(now) + KEEP_RESOLVED_S)},
            },
        }
        delete = {"TableName": self._table, "Key": report.line_key}
        with contextlib.suppress(ConditionFailed):
            await self._client.call(
                "transact_write_items", {"TransactItems": [{"Update": update}, {"Delete": delete}]}
            )

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[list[Report], str | None]:
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
        extra = 1 if is_newest_first and after is not None else 0
        rows = await self._query(span, limit + extra, is_newest_first=is_newest_first)
        places = [place for row in rows if (place := row[Field.SK]["S"]) != after][:limit]
        keys = []
        for place in places:
            _, chat, seq, reporter = place.split("#")
            sort = f"{REPORT_PREFIX}{seq}#{reporter}"
            keys.append({Field.PK: {"S": f"c#{chat}"}, Field.SK: {"S": sort}})
        reports = [Report.decode(item) for item in await get_items(self._client, self._table, keys)]
        by_place = {report.line_key[Field.SK]["S"]: report for report in reports}
        open_reports = [by_place[place] for place in places if place in by_place]
        return open_reports, places[-1] if len(places) == limit else None

    async def list_reports(self, chat: str, after: str | None, limit: int) -> list[Report]:
        """Return a chat's open and resolved reports after `after`, sorted by seq."""
        span = Span(
            DIRECTORY, f"c#{chat}", between=(_lower_bound(REPORT_PREFIX, after), AFTER_REPORTS)
        )
        return [Report.decode(row) for row in await self._query(span, limit)]

    async def _query(self, span: Span, limit: int, *, is_newest_first: bool = False) -> list[Item]:
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit}
        request["ScanIndexForward"] = not is_newest_first
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        return rows

    def _block_row(self, user: str, other: str) -> Item:
        return {Field.PK: {"S": f"u#{user}"}, Field.SK: {"S": block_key(other)}}


def _lower_bound(prefix: str, after: str | None) -> str:
    """Return the lowest possible sort key with `prefix` that follows `after`."""
    return prefix if after is None else f"{prefix}{after}!"
