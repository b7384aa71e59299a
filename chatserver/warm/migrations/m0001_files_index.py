"""Index `files`: the messages of a chat that have files, without reading the others.

Messages with files carry `files_of`, the chat's id once more. It is absent from all others, so the
index holds only them, and a message without files costs no write more than before.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm import versions
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.tables import FILES_INDEX, MESSAGES

FILES_INDEX_MADE: Final = Migration(
    number=versions.FILES,
    name="files-index",
    kind="expand",
    idea="files of a chat",
    table=MESSAGES,
    why="index `files`: messages of a chat that have files",
    index=FILES_INDEX,
)
