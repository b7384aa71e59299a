"""Dependencies of attachments in gateways. Gateways resolve the file ids in messages."""

from __future__ import annotations

from chatserver.container import feature_ports
from chatserver.container.gateway import GatewayContainer
from chatserver.features.attachments.hot import SendableFiles, decode_file
from chatserver.features.attachments.model import File
from chatserver.features.attachments.service.attachment_resolver import AttachmentResolver


def resolve_files(core: GatewayContainer) -> feature_ports.ResolveFiles:
    async def load_file(file: str) -> File | None:
        """Return the metadata of a file from the `directory` table, through an RPC worker."""
        payload = await core.warm.load_file(file)
        return decode_file(payload) if payload else None

    return AttachmentResolver(
        files=SendableFiles(core.hot),
        load_file=load_file,
        clock=core.clock,
    ).resolve
