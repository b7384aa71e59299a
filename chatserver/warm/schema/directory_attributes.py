"""Attributes that migrations, Streams and others store in table `directory`.

`chatserver.warm.schema.tables` defines the table's other attributes. A prefix in a comment, such as
"chats:", names the items that have the attribute.
"""

from __future__ import annotations

from typing import Final


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
    POSITION: Final = "position"  # Stream shards: last processed sequence number
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
