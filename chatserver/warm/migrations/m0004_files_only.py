"""Files of a chat are read by index `files` alone.

Processes that write no `files_of` are refused from here on. What they wrote since the fill is found
by another look at all items; then the index is complete, and stays so.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm import versions
from chatserver.warm.chatfiles import MENDED_BY, mend_files
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.tables import MESSAGES

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
