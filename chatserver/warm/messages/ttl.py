"""TTL of items in table `messages`: attribute `ttl`, the time at which DynamoDB deletes an item.

    an item whose message expires (`expires_at`)  ttl = expires_at: the body has no other copy
    an archived item that changes                 no ttl until the archive contains the change
    any other item, if `archive.removal` is ttl   ttl = ts + retention + margin
    any other item                                no ttl: the archive worker deletes it

The archive worker copies old items before the margin ends, so TTL removes only archived items
(`workers.archive.archiver`). If TTL removes an item too early, the reader of the table's Stream
restores it (`workers.archive.ttl_removal_checks`).

Invariant: if the item of an archived entry has a `ttl`, the archive contains the same entry, or the
message expires. A change to an item that may have been archived therefore removes its `ttl`.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.config import Archive
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import MessageField as Field

# Tolerance for clock differences between two workers, and for the duration of a write.
SLACK_S: Final = 3600
US: Final = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class ItemRetention:
    """Retention of items, in seconds. With `retention_s` 0, items are not archived."""

    retention_s: int
    margin_s: int
    is_by_ttl: bool

    @classmethod
    def by(cls, settings: Archive) -> ItemRetention:
        """Return the retention defined by the settings."""
        is_by_ttl = settings.removal == "ttl" and settings.retention_s > 0
        return cls(settings.retention_s, settings.ttl_margin_s, is_by_ttl)

    def compute_ttl(self, ts: int, now_s: float) -> int | None:
        """Return the age-based `ttl` (Unix s) for an item that is written now; None: no `ttl`.

        An item that is written long after its message was sent gets no `ttl`, because TTL might
        delete it before it is archived. The archive worker deletes such an item.
        """
        if not self.is_by_ttl:
            return None
        expires = ts // US + self.retention_s + self.margin_s
        return None if expires < now_s + self.margin_s else expires

    def may_be_archived(self, item: Item, now_s: float) -> bool:
        """Return whether an item has an age-based `ttl` and may already be in the archive.

        Checks both the item's age and its `ttl`, which may be based on another retention setting.
        """
        if Field.TTL not in item or Field.EXPIRES_AT in item:
            return False
        ttl = int(item[Field.TTL]["N"])
        return self.is_old(int(item[Field.TS]["N"]), now_s) or ttl <= self.get_archived_ttl_max(
            now_s
        )

    def is_old(self, ts: int, now_s: float) -> bool:
        """Return whether an entry is old enough to be in the archive."""
        return ts // US + self.retention_s - SLACK_S <= now_s

    def get_archived_ttl_max(self, now_s: float) -> int:
        """Return the latest age-based `ttl` that an archived item may have."""
        return int(now_s) + self.margin_s + SLACK_S

    def is_soon(self, ttl: int | None, now_s: float) -> bool:
        """Return whether TTL deletes an item within twice `margin_s`."""
        return ttl is not None and ttl <= now_s + 2 * self.margin_s


NO_EXPIRY: Final = ItemRetention(0, 0, is_by_ttl=False)


def find_ttl(item: Item) -> int | None:
    """Return the Unix time (s) from which TTL may remove an item, or None."""
    return int(item[Field.TTL]["N"]) if Field.TTL in item else None
