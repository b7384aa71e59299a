"""Migration 2: backfill of `files_of` in messages older than index `files`."""

from __future__ import annotations

from typing import Final

from chatserver.warm.messages.chat_files import MENDED_BY, mend_files
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import MESSAGES

FILES_FILLED: Final = Migration(
    number=2,
    name="files-filled",
    kind="fill",
    idea="files of a chat",
    table=MESSAGES,
    why="`files_of` in all messages that have files",
    mend=mend_files,
    reads=MENDED_BY,
)
