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
