"""Dependencies of attachments in the API and in workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from chatserver.container import feature_ports, storage_feature_ports
from chatserver.container.feature_ports import Port
from chatserver.container.storage import StorageContainer
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.hot import MediaJobs, SendableFiles, SlowImages, encode_file
from chatserver.features.attachments.model import with_message, without_message
from chatserver.features.attachments.service.attachment_resolver import AttachmentResolver
from chatserver.features.attachments.service.download_links import DownloadLinks, ReadAccess
from chatserver.features.attachments.service.uploads import Uploads
from chatserver.features.attachments.settings import Attachments as AttachmentSettings
from chatserver.features.attachments.warm import Attachments
from chatserver.hot.users.daily_limits import DailyLimit
from chatserver.protocol.frames import Attachment, Message

# Decides who may read a file. By default, the members of the file's chat may.
FILE_READERS: Port[ReadAccess | None] = Port("file_readers", None)


class AttachmentContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self.rows = Attachments(core.dynamodb.for_feature("media"))
        self.objects = Files(core.store)
        self.sendable = SendableFiles(core.hot)
        self.media_jobs = MediaJobs(core.hot)
        self.slow_images = SlowImages(core.hot)
        self.resolver = AttachmentResolver(
            files=self.sendable,
            load_file=self.rows.find_file,
            clock=core.clock,
        )

    @cached_property
    def _readers(self) -> ReadAccess:
        return self._core.get_port(FILE_READERS) or self._core.members

    @cached_property
    def download_links(self) -> DownloadLinks:
        return DownloadLinks(
            rows=self.rows,
            objects=self.objects,
            readers=self._readers,
            pages=self._core.history,
        )

    @cached_property
    def uploads(self) -> Uploads:
        return Uploads(
            rows=self.rows,
            objects=self.objects,
            files=self.sendable,
            jobs=self.media_jobs,
            readers=self._readers,
            settings=self._core.settings.get(AttachmentSettings),
            clock=self._core.clock,
            daily_bytes=DailyLimit(
                self._core.hot,
                "file_bytes",
                self._core.settings.get(AttachmentSettings).day_bytes_max,
            ),
        )


def resolve_files(core: StorageContainer) -> feature_ports.ResolveFiles:
    return core.get(AttachmentContainer).resolver.resolve


# A file without references is deleted. The persist worker adds and removes references before it
# advances its backlog checkpoint, so no change is lost.


def record_files(core: StorageContainer) -> storage_feature_ports.RecordFiles:
    rows = core.get(AttachmentContainer).rows

    async def record(message: Message) -> None:
        """Record the references from a message to its files.

        Guarantees:
            Idempotent. A deleted file is not restored.

        Raises:
            Unavailable: some of the references may have been recorded; retry.
        """
        for attachment in message.attachments:
            await rows.update_file(
                attachment.id, lambda file: with_message(file, message.seq, message.expires_at)
            )

    return record


def release_files(core: StorageContainer) -> storage_feature_ports.ReleaseFiles:
    attachments = core.get(AttachmentContainer)

    async def release(seq: int, files: Sequence[Attachment]) -> None:
        """Remove the references from message `seq` to its files. Idempotent. Raises Unavailable."""
        # Delete the metadata in Redis first, because it must not outlive the files.
        await attachments.sendable.drop([file.id for file in files])
        for file in files:
            await attachments.rows.update_file(
                file.id, lambda stored: without_message(stored, seq, core.clock.time())
            )

    return release


def load_file(core: StorageContainer) -> storage_feature_ports.LoadFile:
    async def load(name: str) -> bytes:
        file = await core.get(AttachmentContainer).rows.find_file(name)
        return b"" if file is None else encode_file(file)

    return load
