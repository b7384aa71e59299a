"""Migration 4: attachments of a chat are listed by index `files` only.

Processes that do not write `files_of` are rejected from now on. A second pass over all items
repairs those that such processes wrote since the fill; then the index is complete and stays so.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.messages.chat_files import MENDED_BY, mend_files
from chatserver.warm.schema import versions
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import MESSAGES

FILES_READ_BY_INDEX: Final = Migration(
    number=versions.FILES_ONLY,
    name="files-only",
    kind="contract",
    idea="files of a chat",
    table=MESSAGES,
    why="files of a chat are read by index `files` alone",
    mend=mend_files,
    reads=MENDED_BY,
    oldest=versions.FILES,
)
