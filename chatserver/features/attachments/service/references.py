"""References from messages to files, recorded by the persist worker.

A file without references will be deleted. The persist worker adds and removes references before
it advances its backlog checkpoint, so no change is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.domain.clock import Clock
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.model import with_message, without_message
from chatserver.features.attachments.warm import Attachments
from chatserver.protocol.frames import Attachment, Message


class References:
    """Records the references from messages to files."""

    def __init__(self, rows: Attachments, files: SendableFiles, clock: Clock) -> None:
        self._rows = rows
        self._sendable = files
        self._clock = clock

    async def record(self, message: Message) -> None:
        """Record the references from a message to its files.

        Guarantees:
            Idempotent. A deleted file is not restored.

        Raises:
            Unavailable: some of the references may have been recorded; retry.
        """
        for attachment in message.attachments:
            await self._rows.update_file(
                attachment.id, lambda file: with_message(file, message.seq, message.expires_at)
            )

    async def release(self, seq: int, attachments: Sequence[Attachment]) -> None:
        """Remove the references from message `seq` to its files. Idempotent. Raises Unavailable."""
        # Delete the metadata in Redis first, because it must not outlive the files.
        await self._sendable.drop([attachment.id for attachment in attachments])
        for attachment in attachments:
            await self._rows.update_file(
                attachment.id, lambda file: without_message(file, seq, self._clock.time())
            )
