"""Message storage: item format, batch writes and reads by seq.

Owns table `messages`, one item per message, key ``(chatid, ts)``:

    chatid S  ts N  seq N  mid S  ref S  sender_id S  receiver_id S (direct chats only)  kind S
    body S  body_sha256 S  body_bytes N (both if the body is in S3)  reply_to N (if a reply)
    status S  status_ts S "<status>#<ts, 20 digits>"  rev N
    expires_at N (if it expires)  ttl N (if TTL removes it)
    attachments S (if any: JSON)  files_of S (if any: the chat id)
    ai S (if an AI model generated it: JSON)
    sum S (`chatserver.warm.messages.checksums`; absent from items of the first releases)
    if changed: edited_ts N  edited_seq N  reactions M  deleted BOOL  shredded BOOL
    other entries: target N  user S  role S  name S

Entries that are not messages are items too, so seq has no gaps. `status` is `active` or `deleted`
for messages and `event` for other entries.

Invariants: an item depends only on its message, except for `ttl` (`chatserver.warm.messages.ttl`),
so writes are idempotent. Within a chat, ts increases with seq. A body has at most 256 KB, so each
item fits into DynamoDB's 400 KB; long bodies are normally stored in S3
(`chatserver.warm.messages.long_bodies`).

`chatid` is the partition: ``<chat>``, or ``<chat>#<n>`` if the chat had write sharding when the
entry was sent (`chatserver.domain.write_sharding`). `encode_item` sets it to ``<chat>``; the writer
then replaces it with the shard's partition.

There are two ways to read. `chatserver.warm.messages.message_indexes` reads by time, page by page.
`find_head`, `list_before` and `list_after` read by seq, with strong consistency, and return
consecutive entries; `chatserver.service.history` adds the entries in Redis.

Once a message has expired, even before TTL deletes its item, queries by time skip it, and reads by
seq return a tombstone. So readers can distinguish expired messages from missing ones. After the
item is deleted, a removal marker (`chatserver.warm.messages.removed_message_markers`) has the same
effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.write_sharding import get_partition_chat
from chatserver.errors import CorruptData
from chatserver.protocol import expired_messages
from chatserver.protocol.frames import ENTRY_KINDS, Ai, Attachment, Message
from chatserver.protocol.message_change_effects import build_shredded_tombstone, is_message
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import Span, check_limit
from chatserver.warm.messages import removed_message_markers
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads, add_partition_key
from chatserver.warm.messages.checksums import compute_checksum
from chatserver.warm.messages.long_bodies import Bodies, NoBodies, get_object_key
from chatserver.warm.messages.seq_search import PROBES_MAX, TS_MAX, Probe, SeqPosition, SeqSearch
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.messages.ttl import NO_EXPIRY, ItemRetention
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

STATUS_ACTIVE = "active"
STATUS_DELETED = "deleted"
STATUS_EVENT = "event"


class PersistItem(msgspec.Struct, frozen=True, gc=False):
    """A message to be persisted. `receiver` is the other user of a direct chat."""

    message: Message
    receiver: str | None


def encode_item(item: PersistItem, removed_at: int | None = None) -> Item:
    """Return the item for a message. Deterministic: equal messages have equal items.

    `removed_at` (Unix s) is when TTL removes the item because of its age. It is ignored for an
    expiring message: the body has no other copy, so the item stays until the message expires.

    Raises:
        CorruptData: the body is not valid Unicode, which some DynamoDB servers accept.
    """
    message = item.message
    if not message.body.isascii():
        _check_unicode(message)
    status, ts = _get_status(message), str(message.ts)
    encoded: Item = {
        Field.CHAT: {"S": message.chat},
        Field.TS: {"N": ts},
        Field.SEQ: {"N": str(message.seq)},
        Field.MID: {"S": message.mid},
        Field.REF: {"S": message.ref},
        Field.SENDER: {"S": message.sender},
        Field.KIND: {"S": message.kind},
        Field.BODY: {"S": message.body},
        Field.STATUS: {"S": status},
        Field.STATUS_TS: {"S": get_status_ts(status, message.ts)},
        Field.REV: {"N": str(message.rev or 1)},
    }
    if item.receiver is not None:
        encoded[Field.RECEIVER] = {"S": item.receiver}
    if message.reply_to is not None:
        encoded[Field.REPLY_TO] = {"N": str(message.reply_to)}
    if message.expires_at is not None:
        encoded[Field.EXPIRES_AT] = {"N": str(message.expires_at)}
        removed_at = message.expires_at
    if removed_at is not None:
        encoded[Field.TTL] = {"N": str(removed_at)}
    if message.attachments:
        files = msgspec.json.encode(message.attachments)
        encoded[Field.ATTACHMENTS] = {"S": files.decode()}
        encoded[Field.FILES_OF] = encoded[Field.CHAT]
    if message.ai is not None:
        encoded[Field.AI] = {"S": msgspec.json.encode(message.ai).decode()}
    if message.rev or message.deleted or status == STATUS_EVENT:
        encoded |= _encode_more(message)
    encoded[Field.SUM] = {"S": compute_checksum(message)}
    return encoded


def _check_unicode(message: Message) -> None:
    try:
        message.body.encode()
    except UnicodeEncodeError as exc:
        raise CorruptData(f"message {message.seq} of {message.chat}: body: {exc}") from exc


def get_status_ts(status: str, ts: int) -> str:
    """Return the sort key for index `status`: within a status, it sorts by time."""
    return f"{status}#{str(ts).zfill(20)}"


def _get_status(message: Message) -> str:
    if not is_message(message):
        return STATUS_EVENT
    return STATUS_DELETED if message.deleted else STATUS_ACTIVE


def _encode_more(message: Message) -> Item:
    """Return the attributes of changed messages, and of entries that are not messages."""
    fields: Item = {}
    numbers = {
        Field.TARGET: message.target,
        Field.EDITED_TS: message.edited_ts or None,
        Field.EDITED_SEQ: message.edited_seq or None,
        Field.MUTED_UNTIL: message.muted_until,
    }
    texts = {Field.USER: message.user, Field.ROLE: message.role, Field.NAME: message.name}
    fields |= {name: {"N": str(value)} for name, value in numbers.items() if value is not None}
    fields |= {name: {"S": value} for name, value in texts.items() if value is not None}
    if message.reactions:
        reactions = {user: {"S": emoji} for user, emoji in message.reactions.items()}
        fields[Field.REACTIONS] = {"M": reactions}
    flags = {
        Field.DELETED: message.deleted,
        Field.BANNED: message.banned,
        Field.SHREDDED: message.shredded,
    }
    fields |= {name: {"BOOL": True} for name, is_so in flags.items() if is_so}
    return fields


def decode_item(item: Item) -> Message:
    """Decode an item into a message. A long body is left empty.

    Raises:
        CorruptData: the item is not a valid message item.
    """
    try:
        reply_to, ends = item.get(Field.REPLY_TO), item.get(Field.EXPIRES_AT)
        message = Message(
            seq=int(item[Field.SEQ]["N"]),
            ts=int(item[Field.TS]["N"]),
            chat=get_partition_chat(item[Field.CHAT]["S"]),
            mid=item[Field.MID]["S"],
            sender=item[Field.SENDER]["S"],
            ref=item[Field.REF]["S"],
            kind=item[Field.KIND]["S"],
            body=item[Field.BODY]["S"],
            reply_to=None if reply_to is None else int(reply_to["N"]),
            expires_at=None if ends is None else int(ends["N"]),
            attachments=_decode_files(item) if Field.ATTACHMENTS in item else [],
            ai=_decode_ai(item) if Field.AI in item else None,
        )
        if Field.SHREDDED in item:
            return build_shredded_tombstone(_decode_more(message, item))
        is_as_sent = item[Field.REV]["N"] == "1" and Field.DELETED not in item
        if is_as_sent and message.kind not in ENTRY_KINDS:
            return message
        return _decode_more(message, item)
    except (KeyError, ValueError, msgspec.DecodeError) as exc:
        key = {name: item.get(name) for name in MESSAGES.key.names}
        raise CorruptData(f"table messages: the item at {key} is not a message: {exc!r}") from exc


async def decode_each(items: Sequence[Item], bodies: Bodies) -> Sequence[Message | None]:
    """Return the messages of `items` in order, with their long bodies.

    A message is None if it was moved to the archive after its item was read.

    Raises:
        CorruptData: an item is not a valid message item.
        Unavailable: a body cannot be read.
    """
    messages = [decode_item(item) for item in items]
    if not any(get_object_key(item) for item in items):
        return messages
    return await bodies.load(items, messages, decode_item)


async def decode_items(items: Sequence[Item], bodies: Bodies) -> list[Message]:
    """Return the messages of `items`, except archived ones; see `decode_each`."""
    return [message for message in await decode_each(items, bodies) if message is not None]


def _decode_files(item: Item) -> list[Attachment]:
    return msgspec.json.decode(item[Field.ATTACHMENTS]["S"], type=list[Attachment])


def _decode_ai(item: Item) -> Ai:
    return msgspec.json.decode(item[Field.AI]["S"], type=Ai)


def _decode_more(message: Message, item: Item) -> Message:
    """Add the attributes of changed messages, and of entries that are not messages."""

    def number(name: str) -> int | None:
        return int(item[name]["N"]) if name in item else None

    def text(name: str) -> str | None:
        return item[name]["S"] if name in item else None

    rev = number(Field.REV) or 1
    reactions = item.get(Field.REACTIONS, {"M": {}})["M"]
    return msgspec.structs.replace(
        message,
        target=number(Field.TARGET),
        user=text(Field.USER),
        role=text(Field.ROLE),
        name=text(Field.NAME),
        rev=rev if rev > 1 else 0,
        edited_ts=number(Field.EDITED_TS) or 0,
        edited_seq=number(Field.EDITED_SEQ) or 0,
        deleted=Field.DELETED in item,
        muted_until=number(Field.MUTED_UNTIL),
        banned=Field.BANNED in item,
        reactions={user: emoji["S"] for user, emoji in reactions.items()},
    )


class Messages:
    """Repository of table `messages`."""

    def __init__(
        self,
        client: DynamoClient,
        clock: Clock | None = None,
        shards: ShardedChats | None = None,
        retention: ItemRetention = NO_EXPIRY,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._clock = clock or SystemClock()
        self._retention = retention
        self._table = MESSAGES.name_in(client.settings)
        self._rows = ChatPartitionReads(client, self._clock, shards)

    async def put_batch(self, items: Sequence[PersistItem], timeout_s: float) -> None:
        """Store messages with sequential calls of 25 items each.

        If two messages have the same key, the later one is stored.

        Guarantees:
            All messages are stored when this returns. Idempotent.
            Cancellation: safe; some may have been stored.
            Cost: one BatchWriteItem per 25 messages. A direct message of 1 KB takes 4 write units,
            a group message 3: one for the item and the others for indexes. Attachments and an
            expiry take one more unit each.

        Raises:
            Unavailable: not all were stored within `ATTEMPTS_MAX` attempts per call and `timeout_s`
                in total. Some may have been stored.
            CorruptData: an item is invalid; some of the others may not have been stored.
        """
        if not items:
            return
        layouts = await self._rows.get_layouts(max(item.message.ts for item in items))
        now_s = self._clock.time()
        encoded = {
            (item.message.chat, item.message.ts): encode_item(
                item, self._retention.compute_ttl(item.message.ts, now_s)
            )
            for item in items
        }
        marked = {
            (item.message.chat, item.message.ts): removed_message_markers.encode_marker(
                item.message
            )
            for item in items
            if item.message.expires_at is not None
        }
        deadline_s = self._clock.monotonic() + timeout_s
        short = await self._bodies.offload(list(encoded.values()))
        if layouts.of_chats:
            short = [add_partition_key(layouts, item) for item in short]
        unique = [*marked.values(), *short]
        for start in range(0, len(unique), WRITES_MAX):
            left_s = max(0.0, deadline_s - self._clock.monotonic())
            await put_items(self._client, self._table, unique[start : start + WRITES_MAX], left_s)

    async def fill_hole(self, chat: str, seq: int, ts: int) -> None:
        """Store a marker for a lost message, which must not be archived.

        `ts` must be between the ts of the previous and the next entry. If the message is stored
        later, it takes precedence over the marker.

        Guarantees:
            Idempotent.
        """
        marker = removed_message_markers.encode_marker(
            removed_message_markers.build_lost_message(chat, seq, ts)
        )
        await put_items(self._client, self._table, [marker])

    # Reads by seq.

    async def find_head(self, chat: str) -> Message | None:
        """Return a chat's newest stored message; new messages must have a higher seq and ts.

        An expired message is returned as a tombstone, even after its item was removed. A long body
        is left empty, so callers do not wait for S3.

        Guarantees:
            Strongly consistent: includes every message stored before the call.
        """
        async with self._client.deadline():
            probe = Probe(TS_MAX, is_newest_first=True)
            items, removed = await asyncio.gather(
                self._read(chat, probe),
                self._read(removed_message_markers.get_partition(chat), probe),
            )
        if removed and (not items or _get_position(items[0]).seq < _get_position(removed[0]).seq):
            return removed_message_markers.decode_marker(removed[0])
        return (
            expired_messages.apply_expiry(decode_item(items[0]), self._clock.time())
            if items
            else None
        )

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return at most `limit` consecutive messages up to seq ``before - 1``, sorted by seq.

        Without `before`, the last message in the result is the chat's newest. `ts_hint` is the
        probable ts of the message with seq `before`; a correct hint saves a search.

        Guarantees:
            The last message has seq ``before - 1``; if that is not stored, the result is empty.
            Shorter than `limit` only at the chat's start or where a message is not stored.
            Strongly consistent, even with a wrong hint.
            Cost: one Query with a correct hint; otherwise 3 to 15 small Queries in addition. A
            sharded chat takes that many per shard, in parallel.

        Raises:
            CorruptData: ts does not increase with seq.
        """
        check_limit(limit)
        if before is None:
            head = await self.find_head(chat)
            if head is None:
                return []
            before, ts_hint = head.seq + 1, head.ts + 1
        target = before - 1
        if target < 1:
            return []
        async with self._client.deadline():
            hint = None if ts_hint is None else ts_hint - 1
            run = await self._read_run(chat, target, limit, hint, is_newest_first=True)
        return run[::-1]

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return at most `limit` consecutive messages from seq ``after + 1`` on, sorted by seq.

        The result is empty if message ``after + 1`` is not stored. For other guarantees and cost,
        see `list_before`.
        """
        check_limit(limit)
        target = after + 1
        async with self._client.deadline():
            hint = None if ts_hint is None else ts_hint + 1
            return await self._read_run(chat, target, limit, hint, is_newest_first=False)

    async def _read_run(
        self, chat: str, target: int, limit: int, hint: int | None, *, is_newest_first: bool
    ) -> list[Message]:
        """Return consecutive messages from seq `target` on; empty if `target` is not stored.

        `hint` is the probable ts of the first message.
        """
        positions: list[SeqPosition] = []
        if hint is not None and 0 <= hint <= TS_MAX:
            items = await self._read(chat, Probe(hint, is_newest_first, limit))
            if items and _get_position(items[0]).seq == target:
                return await self._join(chat, target, Probe(hint, is_newest_first, limit), items)
            positions = [_get_position(item) for item in items]
        position = await self._search(chat, target, positions)
        if position is None:
            position = await self._search(removed_message_markers.get_partition(chat), target, ())
        if position is None:
            return []
        probe = Probe(position.ts, is_newest_first, limit)
        return await self._join(chat, target, probe, await self._read(chat, probe))

    async def _join(
        self, chat: str, target: int, probe: Probe, items: Sequence[Item]
    ) -> list[Message]:
        """Return consecutive messages from seq `target` on: from `items`, or else from markers.

        `items` is the result of Query `probe`. Expired and lost messages have markers.
        """
        now_s, step = self._clock.time(), -1 if probe.is_newest_first else 1
        messages = await decode_items(items, self._bodies)
        by_seq = {
            message.seq: expired_messages.apply_expiry(message, now_s) for message in messages
        }
        run = _run(by_seq, target, step, probe.count)
        if len(run) < probe.count and target + step * len(run) >= 1:
            # A message is missing. If it has expired or was lost, it has a marker.
            removed = await self._read(removed_message_markers.get_partition(chat), probe)
            by_seq = {
                _get_position(item).seq: removed_message_markers.decode_marker(item)
                for item in removed
            } | by_seq
            run = _run(by_seq, target, step, probe.count)
        return run

    async def _search(
        self, chat: str, target: int, positions: Iterable[SeqPosition]
    ) -> SeqPosition | None:
        search = SeqSearch(target, positions)
        for _ in range(PROBES_MAX):
            probe = search.next_probe()
            if probe is None:
                return search.found
            items = await self._read(chat, probe, positions_only=True)
            search.record_result(probe, [_get_position(item) for item in items])
        raise AssertionError("the search did not end within PROBES_MAX probes")

    async def _read(self, chat: str, probe: Probe, *, positions_only: bool = False) -> list[Item]:
        """Return up to `probe.count` items from `probe.ts` on, newest or oldest first.

        Strongly consistent. May take several Queries.
        """
        between = (0, probe.ts) if probe.is_newest_first else (probe.ts, TS_MAX)
        span = Span(MESSAGES, chat, between=between)
        only = (Field.SEQ, Field.TS) if positions_only else ()
        return await self._rows.list(
            span, probe.count, only=only, is_newest_first=probe.is_newest_first
        )


def _get_position(item: Item) -> SeqPosition:
    return SeqPosition(int(item[Field.SEQ]["N"]), int(item[Field.TS]["N"]))


def _run(messages: Mapping[int, Message], first: int, step: int, count: int) -> list[Message]:
    """Return the messages with seq `first`, `first + step`, …: at most `count`, up to a gap."""
    run: list[Message] = []
    while len(run) < count and (message := messages.get(first + step * len(run))) is not None:
        run.append(message)
    return run
