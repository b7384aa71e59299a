"""Migration 1: index `files` lists the messages of a chat that have attachments.

Such messages have `files_of`, a copy of the chat id. All others lack it, so the index contains only
messages with attachments, and other messages cost no additional write.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema import versions
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import FILES_INDEX, MESSAGES

FILES_INDEX_MADE: Final = Migration(
    number=versions.FILES,
    name="files-index",
    kind="expand",
    idea="files of a chat",
    table=MESSAGES,
    why="index `files`: messages of a chat that have files",
    index=FILES_INDEX,
)
