"""Which messages have a file, as the persist worker learns of it.

A file that a message has stays; the last message that loses it lets it go. Both are done before the
backlog moves on, so neither is forgotten, and both may be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from chatserver.domain.attachments import File, with_message, without_message
from chatserver.domain.clock import Clock
from chatserver.protocol.frames import Attachment, Message


class FileRows(Protocol):
    """The directory's files."""

    async def change_file(self, file: str, change: Callable[[File], File]) -> File | None: ...


class Known(Protocol):
    """What gateways know of files that may be sent."""

    async def drop(self, files: Sequence[str]) -> None: ...


class References:
    """Keeps files together with the messages that have them."""

    def __init__(self, rows: FileRows, known: Known, clock: Clock) -> None:
        self._rows = rows
        self._known = known
        self._clock = clock

    async def keep(self, message: Message) -> None:
        """Note that a message has its files.

        Guarantees:
            Idempotent. A file that is gone already stays so.

        Raises:
            Unavailable: some may be noted.
        """
        for attachment in message.attachments:
            await self._rows.change_file(
                attachment.id, lambda file: with_message(file, message.seq, message.expires_at)
            )

    async def release(self, seq: int, attachments: Sequence[Attachment]) -> None:
        """Note that message `seq` has lost its files. As `keep`."""
        # Before they are due: what a gateway would believe of them must not outlive that.
        await self._known.drop([attachment.id for attachment in attachments])
        for attachment in attachments:
            await self._rows.change_file(
                attachment.id, lambda file: without_message(file, seq, self._clock.time())
            )
