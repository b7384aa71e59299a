"""Queue of images that take long, in Redis, round-robin by user.

Keys:

- ``{media}:slow`` (zset): image → its position. The images of a user get consecutive positions,
  from the current one on, so the first image of each user comes before the second of any user.
- ``{media}:held`` (zset): image that is being processed or has failed → when it may be claimed
  again (ms).
- ``{media}:images`` (hash): image → ``<attempts> <owner>``, for the images in both zsets.
- ``{media}:turns`` (hash): user → position of the user's last image. The field ``*`` is the
  current position. Deleted when the queue is empty.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.domain.ids import UserId
from chatserver.features.attachments.keys import AttachmentKeys
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

IMAGES_MAX = 10_000


class SlowImage(NamedTuple):
    """An image to process. `attempts` includes the current one."""

    file: str
    attempts: int


class SlowImages:
    """The queue of slow images."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        keys = AttachmentKeys(hot.keys.partitions)
        self._keys = {
            "slow": keys.slow_images(),
            "held": keys.held_images(),
            "images": keys.image_attempts(),
            "turns": keys.image_turns(),
        }

    async def add(self, file: str, owner: UserId) -> None:
        """Queue an image, unless it is already queued.

        If the queue is full, the image with the latest turn is dropped without a result: it belongs
        to a user with many images.
        """
        await self._hot.run(
            load_script("add_slow_image"),
            self._keys,
            {"file": file, "owner": owner, "images_max": IMAGES_MAX},
        )

    async def claim(self, lease_s: float) -> SlowImage | None:
        """Claim the next image. Return None if there is none.

        Guarantees:
            Other workers cannot claim the image until `lease_s` has passed.
        """
        lease_ms = int(lease_s * 1000)
        reply = await self._hot.run(
            load_script("claim_slow_image"), self._keys, {"lease_ms": lease_ms}
        )
        return SlowImage(reply[0].decode(), int(reply[1])) if reply else None

    async def postpone(self, image: SlowImage, wait_s: float) -> None:
        """Let a claimed image wait for `wait_s` before the next attempt."""
        due_ms = await self._hot.get_time_ms(self._keys["held"]) + int(wait_s * 1000)
        await self._hot.call("ZADD", self._keys["held"], "XX", due_ms, image.file)

    async def finish(self, image: SlowImage) -> None:
        """Remove a claimed image. Idempotent."""
        await self._hot.run(load_script("finish_slow_image"), self._keys, {"file": image.file})
