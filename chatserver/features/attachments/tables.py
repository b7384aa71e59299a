"""DynamoDB attributes of files, in table `directory`."""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema.tables import DirectoryField


class FileField:
    """Attributes of files and of users' upload counters, in `directory`."""

    OWNER: Final = "owner"
    CHAT: Final = "chat"
    NAME: Final = DirectoryField.FILE_NAME
    TYPE: Final = "type"
    SIZE: Final = "size"  # bytes
    SHA256: Final = "sha256"  # hex
    CREATED: Final = "created"  # milliseconds since 1970
    DUE: Final = "due"  # seconds since 1970: when the file is removed
    STATE: Final = "state"  # waiting or ready
    SEQS: Final = "seqs"  # seqs of the messages that contain the file
    WIDTH: Final = "width"
    HEIGHT: Final = "height"
    THUMB: Final = "thumb"  # a thumbnail exists
    LOOKED_AT: Final = "looked_at"  # the file has been inspected; no thumbnail will be added later
    REV: Final = "rev"  # number of writes
    UPLOADS: Final = "uploads"  # users: number of uploads that are in no message yet
    BYTES: Final = "bytes"  # users: total size of all their files
