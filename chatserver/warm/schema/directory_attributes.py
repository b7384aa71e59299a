"""Attributes that features, migrations and Streams store in table `directory`.

`chatserver.warm.schema.tables` defines the table's other attributes. A prefix in a comment, such as
"chats:", names the items that have the attribute.
"""

from __future__ import annotations

from typing import Final


class SummaryField:
    """Attributes of companion session summaries, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # chat seq: the first message that the summary covers
    UPTO: Final = "upto"  # chat seq: the last message that the summary covers
    TEXT: Final = "text"
    REV: Final = "rev"  # 1, 2, 3 …: each write requires the previous revision
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: TTL of the first message that expires


class EncryptionField:
    """Attributes of wrapped data keys and of re-encryption, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    WRAPPED: Final = "wrapped"  # the data key, encrypted; absent if it was deleted
    WRAPPED_BY: Final = "wrapped_by"  # "file:<fingerprint>" or "kms:<ARN>"
    CREATED: Final = "created"  # milliseconds since 1970
    SHREDDED: Final = "shredded"  # when the key was deleted, milliseconds since 1970
    PROGRESS: Final = "progress"  # re-encryption, JSON: position of the table scan


class ActiveDaysField:
    """Attributes of chats' active days, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # days since 1970: the first day of the bitmap
    DAYS: Final = "days"  # bitmap, little-endian: bit n is day `first` + n
    EARLIER: Final = "earlier"  # the chat also has messages of unknown earlier days


class PinField:
    """Attributes of pinned messages, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    TS: Final = "ts"  # the message's ts, microseconds since 1970
    PINNED_AT: Final = "pinned_at"  # milliseconds since 1970
    PINS: Final = "pins"  # chats: number of pinned messages
    REQUEST: Final = "request"  # chats: digest of the request that made the last change


class ChatPreferencesField:
    """Attributes of users' chat preferences and pinned chats, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    REV: Final = "rev"  # rises with each write
    ARCHIVED: Final = "archived"  # true, or absent
    MUTED_UNTIL: Final = "muted_until"  # end of the mute, seconds since 1970; 0 means forever
    UNREAD: Final = "unread"  # true if the chat is marked as unread; otherwise absent
    TEXT: Final = "text"  # the draft
    DRAFT: Final = "draft"  # version of the draft
    CLEARED: Final = "cleared"  # chat seq: messages up to it are not shown
    PINNED_CHATS: Final = "pinned_chats"  # ids of the pinned chats, in order
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: TTL of items with only default values


class ExportField:
    """Attributes of the analytics export, in `directory`. A unit is a range of a chat's entries."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # export units: first chat seq
    LAST: Final = "last"  # export units: last chat seq
    BATCH: Final = "batch"  # export units: id of the batch, part of the names of its files
    SHA256: Final = "sha256"  # export units: SHA-256 (hex) of their rows; absent until files exist
    VERSION: Final = "version"  # export units: digest of the data that their rows were made from
    EXPORTED: Final = "exported"  # archive segments: true if the export files contain them
    TAG: Final = "tag"  # archive segments: suffix of the object's key


class FanoutField:
    """Attributes of pending post fan-outs to timelines, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    PLACE: Final = "place"  # last follower processed
    FIRST: Final = "first"  # authors whose posts are merged on read: id of the first such post
    LAST: Final = "last"  # authors whose posts are merged on read: id of the newest such post
    CREATED: Final = "created"  # milliseconds since 1970


class SchemaField:
    """Attributes of migrations and of processes' schema versions, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    VERSION: Final = "version"  # number of the last completed migration
    OLDEST: Final = "oldest"  # minimum schema version of processes
    BLOCKED: Final = "blocked"  # why an operator blocked the tenant
    ACTS_BY: Final = "acts_by"  # processes: schema version
    SEEN: Final = "seen"  # processes: last heartbeat, milliseconds since 1970
    STATE: Final = "state"  # migrations: running or done
    STARTED: Final = "started"  # milliseconds since 1970
    FINISHED: Final = "finished"  # milliseconds since 1970
    SEGMENTS: Final = "segments"  # migrations: number of scan segments
    PROGRESS: Final = "progress"  # scan segments, JSON: last processed key, item and unit counts
    HOLDER: Final = "holder"  # lock: the process that holds it
    TURN: Final = "turn"  # lock: fencing token; scan segments: token of the last writer
    HELD_UNTIL: Final = "held_until"  # lock: milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # processes: seconds since 1970


class ShardField:
    """Attributes of the write sharding items, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    CHATS: Final = "chats"  # map of chat to layout, "<ts>:<shards>,…"
    FLOORS: Final = "floors"  # map of chat to minimum number of shards, "<until ts>:<shards>"
    UPTO: Final = "upto"  # ts up to which all layouts are final
    REV: Final = "rev"  # number of writes to `upto` or a layout
    CHANGED: Final = "changed"  # `rev` of the last change to a layout


class StreamField:
    """Attributes of the shards and readers of the `messages` Stream, in table `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    PARENT: Final = "parent"  # Stream shards: parent shard
    PLACE: Final = "place"  # Stream shards: last processed sequence number
    DONE: Final = "done"  # Stream shards: true if completely read
    READ_TO: Final = "read_to"  # Stream shards: time up to which the shard is read, ms since 1970
    HOLDER: Final = "holder"  # Stream shards: the reader that holds the lease
    TURN: Final = "turn"  # Stream shards: fencing token, rises with each holder
    HELD_UNTIL: Final = "held_until"  # Stream shards: lease expiry, milliseconds since 1970
    SEEN: Final = "seen"  # Stream readers: last heartbeat, milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970


class TenantField:
    """Attributes of tenant records, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    STATE: Final = "state"  # active, blocked, deleting, deleted or restoring
    AT: Final = "at"  # start of the current state, milliseconds since 1970
    JOB: Final = "job"  # id of the deletion or restore
    PROGRESS: Final = "progress"  # JSON: completed steps
    RECEIPT: Final = "receipt"  # JSON: receipt of the deletion
