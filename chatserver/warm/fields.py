"""Attributes of `directory` that came with migrations; `chatserver.warm.tables` has the others."""

from __future__ import annotations

from typing import Final


class PinField:
    """Attributes of pinned messages, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    TS: Final = "ts"  # of the message
    CREATED: Final = "created"  # milliseconds since 1970
    PINS: Final = "pins"  # of the chat: how many there are


class SummaryField:
    """Attributes of what a companion remembers of a session, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # chat seq: the first message that it cites
    UPTO: Final = "upto"  # chat seq: the last one
    TEXT: Final = "text"
    REV: Final = "rev"  # 1, 2, 3 …: who writes has read the one before


class FanoutField:
    """Attributes of posts on their way to timelines, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    PLACE: Final = "place"  # the follower up to whom it is done
    LAST: Final = "last"  # of an author whose posts readers merge: the newest of these posts
    CREATED: Final = "created"  # milliseconds since 1970


class SchemaField:
    """Attributes of what migrations and processes know of the schema, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    VERSION: Final = "version"  # number of the last migration that is done
    OLDEST: Final = "oldest"  # schema that a process must act by at least
    ACTS_BY: Final = "acts_by"  # of a process: its schema
    SEEN: Final = "seen"  # of a process: when it was last heard of, milliseconds since 1970
    STATE: Final = "state"  # of a migration: running or done
    STARTED: Final = "started"  # milliseconds since 1970
    FINISHED: Final = "finished"  # milliseconds since 1970
    SEGMENTS: Final = "segments"  # of a migration: in how many the table is read
    PLACE: Final = "place"  # of a segment, JSON: the key up to which it is done
    DONE: Final = "done"  # of a segment: it is at its end
    READ: Final = "read"  # of a segment: items
    FILLED: Final = "filled"  # of a segment: items
    READ_UNITS: Final = "read_units"  # of a segment
    WRITE_UNITS: Final = "write_units"  # of a segment
    HOLDER: Final = "holder"  # of the lock
    TURN: Final = "turn"  # of the lock: rises with each holder; of a segment: who wrote it
    HELD_UNTIL: Final = "held_until"  # of the lock: milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # of a process: seconds since 1970


class ShardField:
    """Attributes of the row that says which chats are spread over shards, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    REV: Final = "rev"  # rises with each write, and again and again while the tables are used
    FOR_MS: Final = "for_ms"  # how long a process may act by what it read
    CHATS: Final = "chats"  # chat to layout, "<ts>:<shards>,…"


class StreamField:
    """Attributes of what is known of the Stream of `messages`, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    PARENT: Final = "parent"  # of a shard: the one that it continues
    PLACE: Final = "place"  # of a shard: sequence number up to which it is done
    DONE: Final = "done"  # of a shard: it is wholly read
    READ_TO: Final = "read_to"  # of a shard: all up to then is done, milliseconds since 1970
    HOLDER: Final = "holder"  # of a shard: the reader that has it
    TURN: Final = "turn"  # of a shard: rises with each holder
    HELD_UNTIL: Final = "held_until"  # of a shard: nobody else takes it before, milliseconds
    SEEN: Final = "seen"  # of a reader: when it was last heard of, milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970
