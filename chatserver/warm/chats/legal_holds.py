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

import dataclasses
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from chatserver.errors import CorruptData, NotFound
from chatserver.protocol import codec
from chatserver.protocol.frames import Attachment, Message
from chatserver.protocol.message_change_effects import build_shredded_tombstone
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, MessageField
from chatserver.warm.schema.tables import DirectoryField as Field

State = Literal["starting", "in_force", "ending"]
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


# This sort key follows all member keys, so member queries do not read it.
HOLD: Final = Codec(
    Hold,
    "c#{chat}",
    "on_hold",
    reason=Field.REASON,
    by=Field.AUTHOR,
    since_ms=Field.CREATED,
    state=Field.STATE,
)
_MAY_BE_REPLACED: Final = Attr(Field.PK).is_absent | (Attr(Field.STATE) == "ending")


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

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._messages = Table(client, MESSAGES)

    async def put(self, chat: str, reason: str, set_by: str, now: float) -> Hold:
        """Put a chat under a legal hold; return the new or existing hold.

        Guarantees:
            Once this returns, every message version is copied before it is lost, unless the change
            that removes it is already being written.
            Idempotent. A hold in state `ending` is started again.
        """
        hold = Hold(chat, reason, set_by, int(now * 1000))
        actions = [
            self._table.put_action(HOLD.encode(hold), if_=_MAY_BE_REPLACED),
            self._table.put_action((HOLDS, chat)),
        ]
        return hold if await try_write(self._client.transact(actions)) else await self.get(chat)

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
        item = await self._table.find(HOLD.key(chat=chat))
        return None if item is None else HOLD.decode(item)

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
        is_before = Attr(Field.STATE) == before
        key = HOLD.key(chat=chat)
        return await try_write(self._table.update(key, {Field.STATE: after}, if_=is_before))

    async def remove(self, chat: str) -> None:
        """Delete a hold that is ending and has no copies left. Idempotent."""
        actions = [
            self._table.delete_action(HOLD.key(chat=chat), if_=_MAY_BE_REPLACED),
            self._table.delete_action((HOLDS, chat)),
        ]
        await try_write(self._client.transact(actions))  # fails if the hold was started again

    async def list_chats(self, limit: int, start: Token | None = None) -> QueryPage[str]:
        """Return a page of the chats under a legal hold, sorted by id."""
        span = Span(DIRECTORY, HOLDS)

        async def load(rows: list[Item]) -> Sequence[str]:
            return [row[Field.SK]["S"] for row in rows]

        query = self._table.build_query(span)
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
            await put_items(self._client, self._messages.name, unique[start : start + WRITES_MAX])

    async def list_copies(
        self, chat: str, limit: int, start: Token | None = None
    ) -> QueryPage[Message]:
        """Return a page of a chat's copies, oldest first. Strongly consistent."""
        span = Span(MESSAGES, chat + _SUFFIX)

        async def load(rows: list[Item]) -> Sequence[Message]:
            return [decode_copy(row) for row in rows]

        query = self._messages.build_query(span)
        return await read_page(self._client, span, query, load, limit=limit, start=start)

    async def remove_copy(self, version: Message) -> None:
        """Delete the copy of a message version. Idempotent."""
        await self._messages.delete((version.chat + _SUFFIX, version.edited_ts or version.ts))
