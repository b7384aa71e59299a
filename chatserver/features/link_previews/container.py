"""Dependencies of link previews."""

from __future__ import annotations

from functools import cached_property

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.features.link_previews import model
from chatserver.features.link_previews.hot import PreviewCache
from chatserver.features.link_previews.service import LinkPreviews, PageFetcher


class LinkPreviewContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core

    @cached_property
    def previews(self) -> LinkPreviews:
        private = [network for network in model.PRIVATE_NETWORKS.split(",") if network]
        outbound = config.Outbound(allow_private=private, ports=self._core.settings.outbound.ports)
        return LinkPreviews(
            fetcher=PageFetcher(outbound),
            cache=PreviewCache(self._core.hot),
            limits=self._core.limits,
        )
