"""Messages of before index `files` get the attribute by which it lists them."""

from __future__ import annotations

from typing import Final

from chatserver.warm.chatfiles import MENDED_BY, mend_files
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.tables import MESSAGES

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
