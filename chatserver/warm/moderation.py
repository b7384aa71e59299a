"""Blocks, bans and reports, in table `directory`.

| record   | `PK`        | `SK`                       | attributes                              |
|----------|-------------|----------------------------|-----------------------------------------|
| `Block`  | `u#<user>`  | `block#<other>`            | `created`                               |
| `Ban`    | `c#<chat>`  | `ban#<user>`               | `created author`                        |
| `Report` | `c#<chat>`  | `report#<seq>#<reporter>`  | `created reason? state`                 |
|          |             |                            | `resolved_by? expires_at?`              |
| its link | `u#<user>`  | `reported#<chat>#<seq>`    | none: who reported it                   |
| its line | `reports`   | `<created>#<chat>#<seq>#…` | none: there while the report is open    |

A direct chat's own row repeats who of its two users blocks the other (`blocked`), and its `version`
rises with it: so who opens the chat in the hot tier reads one row, and an older reading is known.
`seq` and `created` have a fixed width in keys, so that text sorts as numbers do. The index
`by_member` has the keys turned round, and so lists who blocks a user.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.errors import CorruptData, NotFound
from chatserver.warm.batches import get_items
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.paging import Span
from chatserver.warm.tables import DIRECTORY, MEMBER_INDEX
from chatserver.warm.tables import DirectoryField as Field

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
BLOCKED_BY_MAX: Final = 5_000  # of those who block a user, so many are known to the hot tier


def block_key(other: str) -> str:
    """Return the sort key of a block, and its partition in `by_member`."""
    return f"{BLOCK_PREFIX}{other}"


def ban_key(user: str) -> str:
    """Return the sort key of a ban."""
    return f"{BAN_PREFIX}{user}"


class Block(NamedTuple):
    """A user whom another one blocks, since when (ms)."""

    user: str
    since: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ban:
    """A user who may not come back to a chat."""

    chat: str
    user: str
    by: str
    created_ms: int

    def encode(self) -> Item:
        """Return the row."""
        return {
            Field.PK: {"S": f"c#{self.chat}"},
            Field.SK: {"S": ban_key(self.user)},
            Field.CREATED: {"N": str(self.created_ms)},
            Field.AUTHOR: {"S": self.by},
        }

    @classmethod
    def decode(cls, item: Item) -> Ban:
        """Return the ban of a row. Raises CorruptData."""
        try:
            return cls(
                item[Field.PK]["S"].removeprefix("c#"),
                item[Field.SK]["S"].removeprefix(BAN_PREFIX),
                item[Field.AUTHOR]["S"],
                int(item[Field.CREATED]["N"]),
            )
        except (KeyError, ValueError) as exc:
            raise CorruptData(f"directory: {item.get(Field.PK)} has a row that is no ban") from exc


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a reader thinks that somebody should look at."""

    chat: str
    seq: int
    reporter: str
    created_ms: int
    reason: str = ""
    state: str = OPEN
    resolved_by: str | None = None

    @property
    def sort_key(self) -> str:
        """The sort key of the row."""
        return f"{REPORT_PREFIX}{self.seq:020d}#{self.reporter}"

    @property
    def line_key(self) -> Item:
        """The key of the line among those that are open."""
        sort = f"{self.created_ms:020d}#{self.chat}#{self.seq:020d}#{self.reporter}"
        return {Field.PK: {"S": OPEN_REPORTS}, Field.SK: {"S": sort}}

    @property
    def link_key(self) -> Item:
        """The key of the row by which the reporter's reports are found."""
        sort = f"reported#{self.chat}#{self.seq:020d}"
        return {Field.PK: {"S": f"u#{self.reporter}"}, Field.SK: {"S": sort}}

    def encode(self) -> Item:
        """Return the row of an open report."""
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
        """Return the report of a row. Raises CorruptData."""
        try:
            _, seq, reporter = item[Field.SK]["S"].split("#")
            by = item.get(Field.RESOLVED_BY)
            return cls(
                item[Field.PK]["S"].removeprefix("c#"),
                int(seq),
                reporter,
                int(item[Field.CREATED]["N"]),
                item.get(Field.REASON, {"S": ""})["S"],
                item[Field.STATE]["S"],
                by["S"] if by else None,
            )
        except (KeyError, ValueError) as exc:
            where = item.get(Field.PK)
            raise CorruptData(f"directory: {where} has a row that is no report") from exc


class Moderation:
    """Reads and writes the rows. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    # blocks

    async def put_block(self, user: str, other: str, now: float) -> None:
        """Note that `user` blocks `other`; a block that is there stays as it is."""
        item: Item = self._block_row(user, other) | {Field.CREATED: {"N": str(int(now * 1000))}}
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed:
            return

    async def delete_block(self, user: str, other: str) -> None:
        """Note that `user` does not block `other`."""
        request = {"TableName": self._table, "Key": self._block_row(user, other)}
        await self._client.call("delete_item", request)

    async def mark_chat(self, chat: str, blocker: str, *, is_blocked: bool) -> bool:
        """Note in a direct chat's row whether one of its users blocks the other.

        False if there is no such chat, or it says so already.
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
        try:
            await self._client.call("update_item", request)
        except ConditionFailed:
            return False
        return True

    async def find_blocked(self, user: str, others: list[str]) -> set[str]:
        """Return those of `others` whom `user` blocks, or who block `user`. Consistent."""
        keys = [self._block_row(user, other) for other in others]
        keys += [self._block_row(other, user) for other in others]
        found = set()
        for item in await get_items(self._client, self._table, keys):
            owner = item[Field.PK]["S"].removeprefix("u#")
            found |= {owner, item[Field.SK]["S"].removeprefix(BLOCK_PREFIX)}
        return found - {user}

    async def list_between(self, user: str, other: str) -> list[str]:
        """Return which of two users block the other. Consistent."""
        keys = [self._block_row(user, other), self._block_row(other, user)]
        items = await get_items(self._client, self._table, keys)
        return [item[Field.PK]["S"].removeprefix("u#") for item in items]

    async def list_blocks(self, user: str, after: str | None, limit: int) -> list[Block]:
        """Return whom a user blocks, by id, after one of them. Consistent."""
        span = Span(DIRECTORY, f"u#{user}", between=(_above(BLOCK_PREFIX, after), AFTER_BLOCKS))
        return [
            Block(
                row[Field.SK]["S"].removeprefix(BLOCK_PREFIX),
                int(row[Field.CREATED]["N"]),
            )
            for row in await self._query(span, limit)
        ]

    async def list_blockers(self, user: str) -> list[str]:
        """Return who blocks a user: the first `BLOCKED_BY_MAX` by id. Not consistent."""
        span = Span(DIRECTORY, block_key(user), MEMBER_INDEX)
        request: dict[str, Any] = {**span.query(self._settings), "Limit": 1000}
        found: list[str] = []
        while len(found) < BLOCKED_BY_MAX:
            answer = await self._client.call("query", request)
            found += [row[Field.PK]["S"].removeprefix("u#") for row in answer["Items"]]
            if (last := answer.get("LastEvaluatedKey")) is None:
                break
            request["ExclusiveStartKey"] = last
        return found[:BLOCKED_BY_MAX]

    # bans

    async def delete_ban(self, chat: str, user: str) -> None:
        """Let a user come back."""
        key = {Field.PK: {"S": f"c#{chat}"}, Field.SK: {"S": ban_key(user)}}
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def list_bans(self, chat: str, after: str | None, limit: int) -> list[Ban]:
        """Return who may not come back to a chat, by id, after one of them. Consistent."""
        span = Span(DIRECTORY, f"c#{chat}", between=(_above(BAN_PREFIX, after), AFTER_BANS))
        return [Ban.decode(row) for row in await self._query(span, limit)]

    # reports

    async def put_report(self, chat: str, seq: int, reporter: str, reason: str, now: float) -> bool:
        """Store a report; False if this reporter has reported the message before."""
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
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            return False
        return True

    async def get_report(self, chat: str, seq: int, reporter: str) -> Report:
        """Return a report. Consistent. Raises NotFound."""
        request = {
            "TableName": self._table,
            "Key": {
                Field.PK: {"S": f"c#{chat}"},
                Field.SK: {"S": f"{REPORT_PREFIX}{seq:020d}#{reporter}"},
            },
            "ConsistentRead": True,
        }
        item = (await self._client.call("get_item", request)).get("Item")
        if item is None:
            raise NotFound("report: there is no such report")
        return Report.decode(item)

    async def resolve(self, report: Report, by: str, now: float) -> None:
        """Note that somebody has looked at a report. Idempotent: the first one stays noted."""
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
                ":by": {"S": by},
                ":ends": {"N": str(int(now) + KEEP_RESOLVED_S)},
            },
        }
        delete = {"TableName": self._table, "Key": report.line_key}
        try:
            await self._client.call(
                "transact_write_items", {"TransactItems": [{"Update": update}, {"Delete": delete}]}
            )
        except ConditionFailed:
            return

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[list[Report], str | None]:
        """Return open reports of all chats by time, and the place for `after` of the next page.

        Guarantees:
            Consistent. A page is short only where reports were resolved while it was read.
            Cost: one Query of so many short rows, and one BatchGetItem of as many reports.
        """
        low, high = "0", ":"  # all: a place begins with a digit
        if after is not None:
            low, high = ("0", after) if is_newest_first else (f"{after}!", ":")
        span = Span(DIRECTORY, OPEN_REPORTS, between=(low, high))
        # An end belongs to its range: of the newest first, the last one comes again and is dropped.
        more = 1 if is_newest_first and after is not None else 0
        rows = await self._query(span, limit + more, is_newest_first=is_newest_first)
        places = [place for row in rows if (place := row[Field.SK]["S"]) != after][:limit]
        keys = []
        for place in places:
            _, chat, seq, reporter = place.split("#")
            sort = f"{REPORT_PREFIX}{seq}#{reporter}"
            keys.append({Field.PK: {"S": f"c#{chat}"}, Field.SK: {"S": sort}})
        reports = [Report.decode(item) for item in await get_items(self._client, self._table, keys)]
        by_place = {report.line_key[Field.SK]["S"]: report for report in reports}
        found = [by_place[place] for place in places if place in by_place]
        return found, places[-1] if len(places) == limit else None

    async def list_reports(self, chat: str, after: str | None, limit: int) -> list[Report]:
        """Return reports of a chat, open or not, in the order of their messages."""
        span = Span(DIRECTORY, f"c#{chat}", between=(_above(REPORT_PREFIX, after), AFTER_REPORTS))
        return [Report.decode(row) for row in await self._query(span, limit)]

    async def _query(self, span: Span, limit: int, *, is_newest_first: bool = False) -> list[Item]:
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit}
        request["ScanIndexForward"] = not is_newest_first
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        return rows

    def _block_row(self, user: str, other: str) -> Item:
        return {Field.PK: {"S": f"u#{user}"}, Field.SK: {"S": block_key(other)}}


def _above(prefix: str, after: str | None) -> str:
    """Return a sort key right above `after`: '!' is below all that an id may hold."""
    return prefix if after is None else f"{prefix}{after}!"
