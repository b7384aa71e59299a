"""Dependencies of attachments in gateways. Gateways resolve the file ids in messages."""

from __future__ import annotations

from chatserver.container import feature_ports
from chatserver.container.gateway import GatewayContainer
from chatserver.features.attachments.hot import RemoteFiles, SendableFiles
from chatserver.features.attachments.service.attachment_resolver import AttachmentResolver
from chatserver.features.attachments.settings import Attachments


def resolve_files(core: GatewayContainer) -> feature_ports.ResolveFiles:
    return AttachmentResolver(
        files=SendableFiles(core.hot),
        load_file=RemoteFiles(core.warm).find_file,
        settings=core.settings.get(Attachments),
        clock=core.clock,
    ).resolve
