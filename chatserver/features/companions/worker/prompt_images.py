"""Images for a model request: read from S3, within the limits of the Converse and OpenAI APIs.

An image that exceeds the limits is replaced by its thumbnail. An image that cannot be used is left
out, and `Context.build_messages` adds a note to the message.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import structlog

from chatserver.cold.client import ObjectMissing
from chatserver.domain.ids import ChatId
from chatserver.errors import TooLarge
from chatserver.features.attachments.cold import THUMB_BYTES_MAX, Files
from chatserver.features.attachments.file_types import WEB_IMAGE_TYPES, detect_type
from chatserver.features.attachments.model import File
from chatserver.features.attachments.warm import Attachments
from chatserver.features.companions.providers.interface import Image

log = structlog.get_logger()

IMAGE_BYTES_MAX: Final = 3_750_000  # the Converse API accepts 3.75 MB and 8,000 pixels per side
IMAGE_PIXELS_MAX: Final = 8_000
TOTAL_BYTES_MAX: Final = 12_000_000  # maximum bytes of all images in a model request


class PromptImages:
    """Reads images for prompts."""

    def __init__(self, rows: Attachments, objects: Files) -> None:
        self._rows = rows
        self._objects = objects

    async def load(self, chat: ChatId, ids: Collection[str]) -> dict[str, Image]:
        """Return the usable images among these files, by id. Earlier ids have priority.

        Files from other chats are ignored.

        Raises:
            Unavailable: DynamoDB or S3 is down.
        """
        images: dict[str, Image] = {}
        room = TOTAL_BYTES_MAX
        for id_ in ids:
            file = await self._rows.find_file(id_)
            if file is None or file.chat != chat or file.phase != "ready":
                continue
            image = await self._read(file)
            if image is None or len(image.content) > room:
                log.info("assistant.image_left_out", file=id_)
                continue
            room -= len(image.content)
            images[id_] = image
        return images

    async def _read(self, file: File) -> Image | None:
        fits = (
            file.type in WEB_IMAGE_TYPES
            and file.size <= IMAGE_BYTES_MAX
            and max(file.width or 0, file.height or 0) <= IMAGE_PIXELS_MAX
        )
        try:
            if fits:
                content = await self._objects.read(file, IMAGE_BYTES_MAX)
            elif file.has_thumb:
                content = await self._objects.read(file, THUMB_BYTES_MAX, is_thumb=True)
            else:
                return None
        except (ObjectMissing, TooLarge):
            return None
        type_ = detect_type(content)
        return None if type_ is None or type_ not in WEB_IMAGE_TYPES else Image(type_, content)
