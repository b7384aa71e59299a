"""Legal holds: chats under a hold, and copies of message versions that would otherwise be lost.

| record | table       | partition      | sort     | attributes                            |
|--------|-------------|----------------|----------|---------------------------------------|
| hold   | `directory` | `c#<chat>`     | `on_hold`| `reason author created state`         |
| line   | `directory` | `holds`        | `<chat>` | none: lists a chat under a hold       |
| copy   | `messages`  | `<chat>#held`  | `ts`     | `seq body attachments`, and `copy`:   |
|        |             |                |          | the rest of the message, JSON         |

Members see no effect of a hold. A message version that is about to lose its body (deleted, edited,
erased or expiring) is copied first. The copy has the ts of the message, or of the edit that created
the version. It has no index or TTL attributes, so no index contains it and it does not expire.

Invariants: a chat is under a hold from when `put` returns until `end` is called. The copy of a
version is written before the version is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import msgspec

from chatserver.config import Warm
from chatserver.errors import CorruptData, NotFound
from chatserver.protocol import codec
from chatserver.protocol.frames import Attachment, Message
from chatserver.protocol.message_change_effects import build_shredded_tombstone
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Page, Span, Token, read_page
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, MessageField
from chatserver.warm.schema.tables import DirectoryField as Field

State = Literal["starting", "in_force", "ending"]
# This sort key follows all member keys, so member queries do not read it.
HOLD_ROW: Final = "on_hold"
HOLDS: Final = "holds"
_SUFFIX: Final = "#held"


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold on a chat. In state `starting`, expiring messages are still being copied."""

    chat: str
    reason: str
    by: str
    since_ms: int
    state: State = "starting"


def _key(chat: str) -> Item:
    return row_key(chat_key(chat), HOLD_ROW)


def encode_hold(hold: Hold) -> Item:
    return _key(hold.chat) | {
        Field.REASON: {"S": hold.reason},
        Field.AUTHOR: {"S": hold.by},
        Field.CREATED: {"N": str(hold.since_ms)},
        Field.STATE: {"S": hold.state},
    }


def encode_copy(version: Message) -> Item:
    """Return the item for the copy of a message version.

    The body is a separate attribute, because it may be encrypted, and JSON could double its size.
    The attachments are separate too, because their names may be encrypted.
    """
    without_body = msgspec.structs.replace(version, body="", attachments=[])
    item = {
        MessageField.BODY: {"S": version.body},
        MessageField.CHAT: {"S": version.chat + _SUFFIX},
        MessageField.TS: {"N": str(version.edited_ts or version.ts)},
        MessageField.SEQ: {"N": str(version.seq)},
        MessageField.COPY: {"S": codec.encode(without_body).decode()},
    }
    if version.attachments:
        item[MessageField.ATTACHMENTS] = {"S": msgspec.json.encode(version.attachments).decode()}
    return item


def decode_copy(item: Item) -> Message:
    try:
        copy = codec.decode_message(item[MessageField.COPY]["S"].encode())
        if MessageField.ATTACHMENTS in item:
            files = msgspec.json.decode(item[MessageField.ATTACHMENTS]["S"], type=list[Attachment])
            copy = msgspec.structs.replace(copy, attachments=files)
    except (KeyError, ValueError) as exc:
        key = {name: item.get(name) for name in MESSAGES.key.names}
        raise CorruptData(
            f"table messages: the item at {key} is not a valid legal-hold copy: {exc!r}"
        ) from exc
    if MessageField.SHREDDED in item:
        return build_shredded_tombstone(copy)
    if MessageField.BODY in item:  # earlier releases wrote the body into the JSON
        return msgspec.structs.replace(copy, body=item[MessageField.BODY]["S"])
    return copy


class Holds:
    """Repository of legal holds, and of the message versions that they preserve."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)
        self._messages = MESSAGES.name_in(settings)

    async def put(self, chat: str, reason: str, set_by: str, now: float) -> Hold:
        """Put a chat under a legal hold; return the new or existing hold.

        Guarantees:
            Once this returns, every message version is copied before it is lost, unless the change
            that removes it is already being written.
            Idempotent. A hold in state `ending` is started again.
        """
        hold = Hold(chat, reason, set_by, int(now * 1000))
        put = {
            "TableName": self._table,
            "Item": encode_hold(hold),
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
        """End a hold. Nothing more is copied, and a worker deletes the copies. Idempotent.

        Raises:
            NotFound: there is no hold.
        """
        hold = await self.get(chat)
        if hold.state != "ending" and not await self.set_state(chat, hold.state, "ending"):
            await self.end(chat)  # the state changed concurrently

    async def find(self, chat: str) -> Hold | None:
        """Return a chat's hold, or None. Strongly consistent."""
        item = await find_item(self._client, self._table, _key(chat))
        if item is None:
            return None
        try:
            state = cast(State, item[Field.STATE]["S"])
            since = int(item[Field.CREATED]["N"])
            return Hold(chat, item[Field.REASON]["S"], item[Field.AUTHOR]["S"], since, state)
        except (KeyError, ValueError) as exc:
            raise CorruptData(
                f"table directory: the legal hold of {chat} is invalid: {exc!r}"
            ) from exc

    async def get(self, chat: str) -> Hold:
        """Return a chat's hold. Strongly consistent. Raises NotFound."""
        hold = await self.find(chat)
        if hold is None:
            raise NotFound("chat: is not under a legal hold")
        return hold

    async def is_held(self, chat: str) -> bool:
        """Return whether a chat's message versions must be copied. Cost: half a read unit."""
        hold = await self.find(chat)
        return hold is not None and hold.state != "ending"

    async def set_state(self, chat: str, before: State, after: State) -> bool:
        """Change a hold's state from `before` to `after`; return False if it is not in `before`."""
        request = {
            "TableName": self._table,
            "Key": _key(chat),
            "UpdateExpression": "SET #state = :after",
            "ConditionExpression": "#state = :before",
            "ExpressionAttributeNames": {"#state": Field.STATE},
            "ExpressionAttributeValues": {":after": {"S": after}, ":before": {"S": before}},
        }
        return await write_conditionally(self._client, "update_item", request)

    async def remove(self, chat: str) -> None:
        """Delete a hold that is ending and has no copies left. Idempotent."""
        ending: dict[str, Any] = {
            "TableName": self._table,
            "Key": _key(chat),
            "ConditionExpression": "attribute_not_exists(#pk) OR #state = :ending",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#state": Field.STATE},
            "ExpressionAttributeValues": {":ending": {"S": "ending"}},
        }
        line = {"TableName": self._table, "Key": row_key(HOLDS, chat)}
        actions = [{"Delete": ending}, {"Delete": line}]
        with contextlib.suppress(ConditionFailed):  # the hold has been started again
            await self._client.call("transact_write_items", {"TransactItems": actions})

    async def list_chats(self, limit: int, start: Token | None = None) -> Page[str]:
        """Return a page of the chats under a legal hold, sorted by id."""
        span = Span(DIRECTORY, HOLDS)

        async def load(rows: list[Item]) -> Sequence[str]:
            return [row[Field.SK]["S"] for row in rows]

        query = {**span.query(self._settings), "ConsistentRead": True}
        return await read_page(self._client, span, query, load, limit=limit, start=start)

    # Copies.

    async def copy_versions(self, versions: Sequence[Message]) -> None:
        """Copy message versions that are about to lose their body.

        Guarantees:
            All versions are copied when this returns. Idempotent: each version has its own key.
        """
        copies = {
            (version.chat, version.edited_ts or version.ts): encode_copy(version)
            for version in versions
        }
        unique = list(copies.values())
        for start in range(0, len(unique), WRITES_MAX):
            await put_items(self._client, self._messages, unique[start : start + WRITES_MAX])

    async def list_copies(self, chat: str, limit: int, start: Token | None = None) -> Page[Message]:
        """Return a page of a chat's copies, oldest first. Strongly consistent."""
        span = Span(MESSAGES, chat + _SUFFIX)

        async def load(rows: list[Item]) -> Sequence[Message]:
            return [decode_copy(row) for row in rows]

        query = {**span.query(self._settings), "ConsistentRead": True}
        return await read_page(self._client, span, query, load, limit=limit, start=start)

    async def remove_copy(self, version: Message) -> None:
        """Delete the copy of a message version. Idempotent."""
        copy = encode_copy(version)
        key = {name: copy[name] for name in MESSAGES.key.names}
        await self._client.call("delete_item", {"TableName": self._messages, "Key": key})
