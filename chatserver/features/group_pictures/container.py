"""Dependencies of group pictures."""

from __future__ import annotations

from chatserver.container.storage import StorageContainer
from chatserver.features.group_pictures.service import GroupPictureFiles
from chatserver.features.social.container import SocialContainer


def group_pictures(core: StorageContainer) -> GroupPictureFiles:
    return GroupPictureFiles(
        files=core.get(SocialContainer).pictures, members=core.members, directory=core.directory
    )
