"""Legal holds: which chats nothing may be lost of, and copies of what would be.

| record | table       | partition      | sort     | attributes                            |
|--------|-------------|----------------|----------|---------------------------------------|
| hold   | `directory` | `c#<chat>`     | `on_hold`| `reason author created state`         |
| line   | `directory` | `holds`        | `<chat>` | none: there as long as the hold is    |
| copy   | `messages`  | `<chat>#held`  | `ts`     | `seq` and `copy`: the message, JSON;  |
|        |             |                |          | `body`: if it is long                 |

A hold changes nothing of what members see. A version of a message that is about to lose its text
(deleted, edited, erased, or sent to expire) is copied first, under the time at which it was said:
of the message, or of the edit that made the version. A copy has none of the attributes that
indexes and TTL read, so it stays, and nothing but these functions finds it.

Invariants: a chat is held from the moment at which `put` returns until `end` does; the copy of a
version is written before the version goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import msgspec

from chatserver.config import Warm
from chatserver.errors import CorruptData, NotFound
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.warm.batches import WRITES_MAX, put_items
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.paging import Page, Span, Token, read_page
from chatserver.warm.records import chat_key, row_key
from chatserver.warm.tables import DIRECTORY, MESSAGES, MessageField
from chatserver.warm.tables import DirectoryField as Field

State = Literal["starting", "in_force", "ending"]
HOLD_ROW: Final = "on_hold"  # behind the members: who reads those does not meet it
HOLDS: Final = "holds"
_SUFFIX: Final = "#held"
INLINE_CHARS_MAX: Final = 16_384


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A hold of a chat. While it is `starting`, what may expire is still being copied."""

    chat: str
    reason: str
    by: str
    since_ms: int
    state: State = "starting"


def _key(chat: str) -> Item:
    return row_key(chat_key(chat), HOLD_ROW)


def encode_copy(version: Message) -> Item:
    """Return the copy of a version of a message.

    A long body stands beside it: as JSON it might be twice as long, too long for an item.
    """
    apart: Item = {}
    if len(version.body) > INLINE_CHARS_MAX:
        apart = {MessageField.BODY: {"S": version.body}}
    return apart | {
        MessageField.CHAT: {"S": version.chat + _SUFFIX},
        MessageField.TS: {"N": str(version.edited_ts or version.ts)},
        MessageField.SEQ: {"N": str(version.seq)},
        MessageField.COPY: {
            "S": codec.encode(
                msgspec.structs.replace(version, body="") if apart else version
            ).decode()
        },
    }


def _decode_copy(item: Item) -> Message:
    try:
        copy = codec.decode_message(item[MessageField.COPY]["S"].encode())
    except (KeyError, ValueError) as exc:
        key = {name: item.get(name) for name in MESSAGES.key.names}
        raise CorruptData(f"messages: the item at {key} is not a copy: {exc!r}") from exc
    if MessageField.BODY in item:
        return msgspec.structs.replace(copy, body=item[MessageField.BODY]["S"])
    return copy


class Holds:
    """Reads and writes them."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)
        self._messages = MESSAGES.name_in(settings)

    async def put(self, chat: str, reason: str, by: str, now: float) -> Hold:
        """Put a chat under a hold; return the hold that it is under, which may be an older one.

        Guarantees:
            From the return on no version of a message of the chat goes without a copy, except by
            a change that was being written at that moment.
            Idempotent. One that was ending begins anew.
        """
        hold = Hold(chat, reason, by, int(now * 1000))
        row: Item = _key(chat) | {
            Field.REASON: {"S": hold.reason},
            Field.AUTHOR: {"S": hold.by},
            Field.CREATED: {"N": str(hold.since_ms)},
            Field.STATE: {"S": hold.state},
        }
        put = {
            "TableName": self._table,
            "Item": row,
            "ConditionExpression": "attribute_not_exists(#pk) OR #state = :ending",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#state": Field.STATE},
            "ExpressionAttributeValues": {":ending": {"S": "ending"}},
        }
        line = {"TableName": self._table, "Item": row_key(HOLDS, chat)}
        actions = [{"Put": put}, {"Put": line}]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            return await self.get(chat)
        return hold

    async def end(self, chat: str) -> None:
        """Say that nothing more is to be kept, and what is kept to be removed. Idempotent.

        Raises:
            NotFound: there is no hold.
        """
        hold = await self.get(chat)
        if hold.state != "ending" and not await self.set_state(chat, hold.state, "ending"):
            await self.end(chat)  # it came into force meanwhile

    async def find(self, chat: str) -> Hold | None:
        """Return the hold of a chat. Consistent."""
        request = {"TableName": self._table, "Key": _key(chat), "ConsistentRead": True}
        item: Item | None = (await self._client.call("get_item", request)).get("Item")
        if item is None:
            return None
        try:
            state = cast(State, item[Field.STATE]["S"])
            since = int(item[Field.CREATED]["N"])
            return Hold(chat, item[Field.REASON]["S"], item[Field.AUTHOR]["S"], since, state)
        except (KeyError, ValueError) as exc:
            raise CorruptData(f"directory: the hold of {chat} is no hold: {exc!r}") from exc

    async def get(self, chat: str) -> Hold:
        """Return the hold of a chat. Consistent. Raises NotFound."""
        hold = await self.find(chat)
        if hold is None:
            raise NotFound("chat: is not under a hold")
        return hold

    async def is_held(self, chat: str) -> bool:
        """Tell whether versions of a chat's messages are to be copied. Costs half a read unit."""
        hold = await self.find(chat)
        return hold is not None and hold.state != "ending"

    async def set_state(self, chat: str, before: State, after: State) -> bool:
        """Move a hold on; False if it is in another state, or gone."""
        request = {
            "TableName": self._table,
            "Key": _key(chat),
            "UpdateExpression": "SET #state = :after",
            "ConditionExpression": "#state = :before",
            "ExpressionAttributeNames": {"#state": Field.STATE},
            "ExpressionAttributeValues": {":after": {"S": after}, ":before": {"S": before}},
        }
        try:
            await self._client.call("update_item", request)
        except ConditionFailed:
            return False
        return True

    async def remove(self, chat: str) -> None:
        """Forget a hold that is ending, of which no copies are left. Idempotent."""
        ending: dict[str, Any] = {
            "TableName": self._table,
            "Key": _key(chat),
            "ConditionExpression": "attribute_not_exists(#pk) OR #state = :ending",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#state": Field.STATE},
            "ExpressionAttributeValues": {":ending": {"S": "ending"}},
        }
        line = {"TableName": self._table, "Key": row_key(HOLDS, chat)}
        actions = [{"Delete": ending}, {"Delete": line}]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            return  # it began anew

    async def list_chats(self, limit: int, start: Token | None = None) -> Page[str]:
        """Return a page of the chats that are under a hold, by id."""
        span = Span(DIRECTORY, HOLDS)

        async def load(rows: list[Item]) -> Sequence[str]:
            return [row[Field.SK]["S"] for row in rows]

        query = {**span.query(self._settings), "ConsistentRead": True}
        return await read_page(self._client, span, query, load, limit=limit, start=start)

    # copies

    async def keep(self, versions: Sequence[Message]) -> None:
        """Copy versions of messages that are about to lose their text.

        Guarantees:
            All are copied when it returns. Idempotent: a version has one place.
        """
        copies = {(each.chat, each.edited_ts or each.ts): encode_copy(each) for each in versions}
        unique = list(copies.values())
        for at in range(0, len(unique), WRITES_MAX):
            await put_items(self._client, self._messages, unique[at : at + WRITES_MAX])

    async def list_copies(self, chat: str, limit: int, start: Token | None = None) -> Page[Message]:
        """Return a page of what was kept of a chat, the oldest first. Consistent."""
        span = Span(MESSAGES, chat + _SUFFIX)

        async def load(rows: list[Item]) -> Sequence[Message]:
            return [_decode_copy(row) for row in rows]

        query = {**span.query(self._settings), "ConsistentRead": True}
        return await read_page(self._client, span, query, load, limit=limit, start=start)

    async def remove_copy(self, version: Message) -> None:
        """Remove a copy. Idempotent."""
        copy = encode_copy(version)
        key = {name: copy[name] for name in MESSAGES.key.names}
        await self._client.call("delete_item", {"TableName": self._messages, "Key": key})
