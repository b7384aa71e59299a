"""Analytics table: columns, conversion of chat entries to rows, and object keys. No I/O.

There is one row per message. Entries that change a message (edits, deletions, reactions) have no
rows; their changes are applied to the row of the message. The row of a deleted or expiring message
has only `chat`, `chat_kind`, `seq`, `ts`, `kind` and `is_deleted`.

Rows are exported in *units*, which are ranges of a chat's entries. The units of a chat cover the
exported entries without overlap or gap, and their ranges never change. The rows of a unit are in
the files of its *batch*, one file per date:

    analytics/v1/date=<YYYY-MM-DD>/tenant=<tenant>/part-<batch>.parquet
    analytics/v1/date=<YYYY-MM-DD>/tenant=<tenant>/day-<id>.parquet

The `ts` of a message never changes, so its row stays in one file until compaction moves the rows of
a date's small files into a `day` file (`worker/compaction.py`). The metadata of the `day` file
lists the files that it replaces, and readers ignore these files. A file is replaced with one PUT,
so readers see each message exactly once.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from chatserver.domain.archive_segments import LOST_KIND
from chatserver.domain.ids import ChatId
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import MESSAGE_CHANGE_KINDS, apply_entry, is_message

PREFIX: Final = "analytics/v1/"
DEFAULT_TENANT: Final = "default"  # value of `tenant` if there are no tenants
TABLE: Final = "messages"
_COMPACTED: Final = "day-"

ColumnType = Literal["string", "bigint", "int", "boolean", "timestamp"]


class Column(NamedTuple):
    """A column of the table. `type` is the type in Athena; timestamps are UTC microseconds."""

    name: str
    type: ColumnType
    is_nullable: bool
    meaning: str


PARTITIONS: Final = (
    Column("date", "string", False, "UTC date of `ts`, as `YYYY-MM-DD`"),
    Column("tenant", "string", False, "tenant; `default` without tenants"),
)


# The schema of `analytics/v1`, on which readers depend. Append only nullable columns; any other
# change requires a new prefix.
class MessageRow(NamedTuple):
    """A row. Each field is a column, with its type in Athena and its meaning."""

    chat: Annotated[str, "string", "id of the chat"]
    chat_kind: Annotated[str | None, "string", "`direct`, `group` or `companion`"]
    seq: Annotated[int, "bigint", "position in the chat; `chat` and `seq` identify a message"]
    ts: Annotated[int, "timestamp", "time of sending"]
    sender: Annotated[str | None, "string", "id of the sender; null if deleted"] = None
    receiver: Annotated[
        str | None,
        "string",
        "direct chats: id of the other user; null if deleted or if that user is erased",
    ] = None
    kind: Annotated[str, "string", "kind of message, as sent by the client; usually `text`"] = ""
    body: Annotated[str | None, "string", "text; null unless bodies are exported"] = None
    body_chars: Annotated[int, "int", "length of the text in characters"] = 0
    attachments: Annotated[int, "int", "number of attached files"] = 0
    attachment_bytes: Annotated[int, "bigint", "total size of attached files"] = 0
    reply_to: Annotated[int | None, "bigint", "`seq` of the message that this one replies to"] = (
        None
    )
    reactions: Annotated[int, "int", "number of users who reacted"] = 0
    is_ai: Annotated[bool, "boolean", "written by a language model"] = False
    is_deleted: Annotated[bool, "boolean", "deleted, expired or expiring"] = False
    edited_at: Annotated[int | None, "timestamp", "time of the last edit; null if never edited"] = (
        None
    )


def _list_columns() -> Iterator[Column]:
    for name, hint in typing.get_type_hints(MessageRow, include_extras=True).items():
        python_type, type_, meaning = typing.get_args(hint)
        yield Column(name, type_, type(None) in typing.get_args(python_type), meaning)


COLUMNS: Final = tuple(_list_columns())


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """A range of a chat's entries, ``[first, last]``, that is exported together.

    `sha256` is the digest of the exported rows. `version` identifies the data that the rows were
    read from. Both are empty until the files have been written.
    """

    chat: ChatId
    first: int
    last: int
    batch: str
    sha256: str = ""
    version: str = ""


class ChatFacts(NamedTuple):
    """Properties of a chat that affect its rows. `erased`: users whose data has been erased."""

    kind: str | None = None
    users: Sequence[str] = ()  # the two users of a direct chat; empty for other chats
    erased: Collection[str] = ()

    def find_receiver(self, sender: str) -> str | None:
        """Return the other user of a direct chat, unless that user is erased."""
        if sender not in self.users:
            return None
        other = next((user for user in self.users if user != sender), sender)
        return None if other in self.erased else other


Changes = Mapping[int, Sequence[Message]]  # seq of a message → entries that change it, in seq order


def list_changes(entries: Iterable[Message]) -> dict[int, list[Message]]:
    """Return the entries that change messages, grouped by the seq of the changed message."""
    changes: dict[int, list[Message]] = {}
    for entry in entries:
        if entry.kind in MESSAGE_CHANGE_KINDS and entry.target is not None:
            changes.setdefault(entry.target, []).append(entry)
    return changes


def make_rows(
    entries: Iterable[Message], facts: ChatFacts, changes: Changes, *, with_bodies: bool
) -> list[MessageRow]:
    """Return a row for each message in `entries`, with the changes applied."""
    rows = []
    for entry in entries:
        if not is_message(entry) or entry.kind == LOST_KIND:
            continue
        message = entry
        for change in changes.get(entry.seq, ()):
            message = apply_entry(message, change)
        rows.append(_make_row(message, facts, with_bodies=with_bodies))
    return rows


def _make_row(message: Message, facts: ChatFacts, *, with_bodies: bool) -> MessageRow:
    # An expiring message is exported without content, because the export is not notified of expiry.
    is_gone = message.deleted or message.expires_at is not None
    if is_gone:
        return MessageRow(
            chat=message.chat,
            chat_kind=facts.kind,
            seq=message.seq,
            ts=message.ts,
            kind=message.kind,
            is_deleted=True,
        )
    return MessageRow(
        chat=message.chat,
        chat_kind=facts.kind,
        seq=message.seq,
        ts=message.ts,
        sender=message.sender,
        receiver=facts.find_receiver(message.sender),
        kind=message.kind,
        body=message.body if with_bodies else None,
        body_chars=len(message.body),
        attachments=len(message.attachments),
        attachment_bytes=sum(attachment.size for attachment in message.attachments),
        reply_to=message.reply_to,
        reactions=len(message.reactions),
        is_ai=message.ai is not None,
        is_deleted=False,
        edited_at=message.edited_ts or None,
    )


def compute_digest(value: object) -> str:
    """Return the SHA-256 digest of a value that msgpack can encode."""
    return hashlib.sha256(msgspec.msgpack.encode(value)).hexdigest()


def get_date(ts: int) -> str:
    """Return the UTC date of a time in microseconds."""
    return datetime.datetime.fromtimestamp(ts // 1_000_000, datetime.UTC).date().isoformat()


class FileFacts(NamedTuple):
    """The metadata of a file.

    `contains`: ids of the files whose rows were moved into this file. `moves_to`: id of the target
    file to which the rows of this file move. If the target exists and `contains` this file, the
    rows have moved. If it exists, but does not contain this file, the move was cancelled.
    `is_moved`: the rows have moved and were deleted from this file.
    """

    contains: frozenset[str] = frozenset()
    moves_to: str = ""
    is_moved: bool = False


def day_prefix(date: str, tenant: str) -> str:
    """Return the S3 key prefix that all files for a date and tenant share."""
    return f"{PREFIX}date={date}/tenant={tenant or DEFAULT_TENANT}/"


def object_key(date: str, tenant: str, batch: str) -> str:
    """Return the key of the file that has one export batch's rows for one date."""
    return f"{day_prefix(date, tenant)}part-{batch}.parquet"


def compacted_key(prefix: str, id_: str) -> str:
    """Return the S3 key of a compacted file. `prefix`: its `day_prefix`."""
    return f"{prefix}{_COMPACTED}{id_}.parquet"


def compacted_prefix(prefix: str) -> str:
    """Return the S3 key prefix that a day's compacted files share. `prefix`: the `day_prefix`."""
    return prefix + _COMPACTED


def is_compacted(key: str) -> bool:
    """Return whether a key belongs to a compacted file."""
    return key.rpartition("/")[2].startswith(_COMPACTED)


def get_file_id(key: str) -> str:
    """Return the id of a file from its key: the batch, or the id of the compacted file."""
    return key.rpartition("/")[2].partition("-")[2].removesuffix(".parquet")


def list_moved(facts: Iterable[FileFacts]) -> set[str]:
    """Return the ids of the files that compacted files replace."""
    return {id_ for fact in facts for id_ in fact.contains}
