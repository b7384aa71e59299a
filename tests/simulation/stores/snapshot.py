"""Decoded data of Redis, DynamoDB and S3, read without the product's code."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import zstandard

from tests.simulation.dynamodb.tables import Table
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.values import SortedSet, Stream

_KEY = re.compile(rb"\{(\w+)(?::\w+)?\}:([^:]+):?(.*)", re.DOTALL)
_decode_json = msgspec.json.Decoder().decode

Row = dict[str, Any]


class Key(NamedTuple):
    """The parts of a key. `tag` has no number: ``p``, ``gw``, ``cost``."""

    tag: str
    partition: str
    kind: str
    name: str


class Limits(NamedTuple):
    """The settings that bound stored data.

    `log_min`: persisted entries that a log keeps, less than `log_max` if Redis has been full.
    """

    inbox_max: int
    log_max: int
    log_min: int


class Inbox(NamedTuple):
    """The newest events of a user: ranges of positions, each with a chat and the newest seq."""

    user: str
    events: list[tuple[int, int, str, str]]  # first and last position, chat or ``!``, value
    last: int  # the newest position that was ever assigned


class Chat:
    """Everything that is stored about a chat."""

    def __init__(self, stores: Stores, name: str) -> None:
        self.name = name
        self.row: Row = {}
        self.members: dict[str, Row] = {}
        self.items: list[Row] = []  # by ts
        self.markers: list[Row] = []  # of messages that Redis lost before they were stored
        self.segments: list[Row] = []  # by the newest seq
        self.records: list[Row] = []  # of objects that are in no segment
        self.archive: Row | None = None
        self._stores = stores

    @functools.cached_property
    def archived(self) -> dict[int, Row]:
        """The entries of the segments, by seq."""
        found: dict[int, Row] = {}
        for segment in self.segments:
            content = self._stores.objects.get(self.name_object(segment))
            for entry in read_segment(content) if content is not None else ():
                found[entry["seq"]] = entry
        return found

    @functools.cached_property
    def entries(self) -> dict[int, Row]:
        """The entries of both tiers, by seq; those of the items count."""
        markers = {row["seq"]: row | {"sender_id": "-", "deleted": True} for row in self.markers}
        return markers | self.archived | {row["seq"]: row for row in self.items}

    @functools.cached_property
    def head(self) -> dict[str, str]:
        """The fields in Redis; empty if the chat is not loaded in the current epoch."""
        head = self._stores.hash_of("chat", self.name)
        partition = self._stores.partition_of("chat", self.name)
        epoch = self._stores.hash_at(f"{{{partition}}}:epoch").get("epoch")
        is_loaded = epoch is not None and head.get("gate", "").startswith(f"{epoch}:")
        return head if is_loaded else {}

    @property
    def newest(self) -> int:
        """The newest stored seq."""
        return max(self.entries, default=0)

    @property
    def is_unused_direct(self) -> bool:
        """True for a direct chat without messages: only the user who opened it lists it."""
        return self.row["kind"] == "direct" and not self.entries

    def name_object(self, segment: Row) -> str:
        """Return the name of a segment's object."""
        first, last = segment["first"], segment["last"]
        return f"archive/v1/{self.name}/{first:020}-{last:020}.{segment['tag']}.jsonl.zst"


class Stores:
    """All data at one moment."""

    def __init__(
        self,
        keyspace: Keyspace,
        tables: Mapping[str, Table],
        objects: Mapping[str, bytes],
        *,
        limits: Limits,
        now_s: float,
        table_prefix: str = "",
        has_lost: bool = False,
    ) -> None:
        self.keyspace = keyspace
        self.objects = objects
        self.limits = limits
        self.now_ms = int(now_s * 1000)
        self.has_lost = has_lost  # whether Redis has lost writes during the run
        self._tables = {name.removeprefix(table_prefix): table for name, table in tables.items()}
        self._of_kind: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.keys: dict[bytes, Key] = {}
        for text in keyspace.values:
            if keyspace.expiries.get(text, self.now_ms + 1) > self.now_ms:
                self._add_key(text)

    def _add_key(self, text: bytes) -> None:
        found = _KEY.fullmatch(text)
        partition, kind, name = (part.decode() for part in found.groups()) if found else ("",) * 3
        key = Key(re.sub(r"^p\d+$", "p", partition), partition, kind, name)
        self.keys[text] = key
        if key.tag == "p":
            self._of_kind[kind][name or partition] = text

    # Redis

    def names_of(self, kind: str) -> list[str]:
        """Return the chats, users or partitions that have a key of a kind."""
        return sorted(self._of_kind[kind])

    def partition_of(self, kind: str, name: str) -> str:
        text = self._of_kind[kind].get(name)
        return self.keys[text].partition if text is not None else ""

    def has(self, kind: str, name: str) -> bool:
        return name in self._of_kind[kind]

    def _value_of(self, kind: str, name: str) -> Any:
        text = self._of_kind[kind].get(name)
        return None if text is None else self.keyspace.values[text]

    def hash_at(self, key: str) -> dict[str, str]:
        return _decode_hash(self.keyspace.values.get(key.encode(), {}))

    def hash_of(self, kind: str, name: str) -> dict[str, str]:
        return _decode_hash(self._value_of(kind, name) or {})

    def zset_of(self, kind: str, name: str) -> dict[str, float]:
        found: SortedSet | None = self._value_of(kind, name)
        return {} if found is None else {m.decode(): score for m, score in found.scores.items()}

    def stream_of(self, kind: str, name: str) -> Stream:
        found: Stream | None = self._value_of(kind, name)
        return Stream() if found is None else found

    def list_log(self, chat: str) -> dict[int, Row]:
        """Return the entries of a chat's log, by seq."""
        stream = self.stream_of("log", chat)
        found = {}
        for (seq, _), (ts, blob) in zip(stream.ids, stream.entries, strict=True):
            _, _, tail = blob.partition(b"\n")
            found[seq] = _decode_json(b'{"seq":%d,"ts":%b,%b' % (seq, ts, tail))
        return found

    def list_overlay(self, chat: str) -> dict[int, Any]:
        """Return the changed entries of a chat by seq; numbers for replaced edits."""
        return {int(at): _decode_json(text) for at, text in self.hash_of("over", chat).items()}

    def iter_inboxes(self) -> Iterator[Inbox]:
        for user in self.names_of("inbox"):
            stream = self.stream_of("inbox", user)
            events = []
            for (_, seq), (chat, value) in zip(stream.ids, stream.entries, strict=True):
                first, _, last = value.decode().partition("-") if chat != b"!" else (value, "", "")
                more = int(last) - int(first) if last else 0
                events.append((seq - more, seq, chat.decode(), last or str(first)))
            yield Inbox(user, events, stream.last[1])

    def list_refs(self, chat: str) -> list[tuple[int, int]]:
        """Return the positions (seq, ts) of a chat's refs."""
        fields = self._value_of("chat", chat) or {}
        records = [record for name, record in fields.items() if name[:1] == b"#"]
        return [(int.from_bytes(r[:5]), int.from_bytes(r[5:12])) for r in records]

    def has_expiry(self, kind: str, name: str) -> bool:
        return self._of_kind[kind][name] in self.keyspace.expiries

    # DynamoDB and S3

    def iter_rows(self, table: str) -> Iterator[Row]:
        for _, item in self._tables[table].items.iter_all():
            yield {name: _to_plain(value) for name, value in item.items()}

    @functools.cached_property
    def chats(self) -> dict[str, Chat]:
        """The chats with a row in `directory`."""
        return {name: chat for name, chat in self._all_chats.items() if chat.row}

    @functools.cached_property
    def orphans(self) -> list[str]:
        """The names of chats that have data, but no row in `directory`."""
        return sorted(set(self._all_chats) - set(self.chats))

    @functools.cached_property
    def _all_chats(self) -> dict[str, Chat]:
        chats: dict[str, Chat] = {}

        def get(name: str) -> Chat:
            return chats.setdefault(name, Chat(self, name))

        for row in self.iter_rows("directory"):
            kind, _, name = row["PK"].partition("#")
            if kind == "c":
                _add_chat_row(get(name), row)
            elif kind == "a" and name not in {"restored", "late"}:
                _add_archive_row(get(name), row)
        for row in self.iter_rows("messages"):
            name, _, shard = row["chatid"].partition("#")
            if not shard or shard.isdigit():
                get(name).items.append(row)
            elif shard == "gone":
                get(name).markers.append(row)
        for chat in chats.values():
            chat.items.sort(key=lambda row: row["ts"])
        return chats


def _add_chat_row(chat: Chat, row: Row) -> None:
    kind, _, user = row["SK"].partition("#")
    if kind == "c":
        chat.row = row
    elif kind == "m":
        chat.members[user] = row


def _add_archive_row(chat: Chat, row: Row) -> None:
    match row["SK"].partition("#")[0]:
        case "a":
            chat.archive = row
        case "s":
            chat.segments.append(row)
        case "x":
            chat.records.append(row)


def read_segment(content: bytes) -> list[Row]:
    """Return the entries of a segment's object."""
    lines = zstandard.ZstdDecompressor().decompress(content).splitlines()
    return [_decode_json(line) for line in lines[1:]]


def _decode_hash(found: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the fields of a hash but the refs of a chat, which are binary."""
    return {
        field.decode(errors="replace"): v.decode(errors="replace")
        for field, v in found.items()
        if field[:1] != b"#"
    }


def _to_plain(value: dict[str, Any]) -> Any:
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content) if content.lstrip("-").isdigit() else float(content)
        case "M":
            return {name: _to_plain(each) for name, each in content.items()}
        case "L":
            return [_to_plain(each) for each in content]
        case "NS":
            return {int(each) for each in content}
        case _:
            return content
