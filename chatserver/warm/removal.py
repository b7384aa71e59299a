"""When items of table `messages` go by themselves: attribute `ttl`, what DynamoDB's TTL reads.

    an item whose text ends (`expires_at`)   ttl = expires_at: until then its text is nowhere else
    any other, if TTL removes by age         ttl = ts + retention + margin
    one that is archived and changes         none, until the archive has the change
    any other                                none: it stays until the archive worker removes it

Within the margin the archive worker copies what is old enough, so that TTL removes only what the
archive has (`workers.archiver`); what it removes all the same too early is put back by the reader
of the table's Stream (`workers.removals`).

Invariant: an item that has `ttl` and whose place is archived is in the archive as it is, or ends.
Whoever changes one that may be archived therefore takes its `ttl`.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.config import Archive
from chatserver.warm.client import Item
from chatserver.warm.mending import Mend
from chatserver.warm.tables import MessageField as Field

# By so much the clocks of two workers may differ, and a write may take.
SLACK_S: Final = 3600
US: Final = 1_000_000

# What `mend_ttl` looks at, with the key.
MENDED_BY: Final = (Field.CHAT, Field.TS, Field.REV, Field.EXPIRES_AT, Field.TTL)


@dataclasses.dataclass(frozen=True, slots=True)
class Keeping:
    """How long items stay. Times are in seconds; `retention_s` 0: they are not archived."""

    retention_s: int
    margin_s: int
    is_by_ttl: bool

    @classmethod
    def by(cls, settings: Archive) -> Keeping:
        """Return what the settings say."""
        is_by_ttl = settings.removal == "ttl" and settings.retention_s > 0
        return cls(settings.retention_s, settings.ttl_margin_s, is_by_ttl)

    def removed_at(self, ts: int, now_s: float) -> int | None:
        """Return when TTL may remove an item that is written now, for the age of its message.

        None if never. One that is written long after it was sent has no margin in which it could be
        archived: the archive worker removes it itself.
        """
        if not self.is_by_ttl:
            return None
        at = ts // US + self.retention_s + self.margin_s
        return None if at < now_s + self.margin_s else at

    def may_be_archived(self, item: Item, now_s: float) -> bool:
        """Tell whether an item that TTL removes for its age is so old that the archive may have it.

        By its own `ttl` as well: it may have been written under another retention.
        """
        if Field.TTL not in item or Field.EXPIRES_AT in item:
            return False
        sent_s, ttl = int(item[Field.TS]["N"]) // US, int(item[Field.TTL]["N"])
        is_old = sent_s + self.retention_s - SLACK_S <= now_s
        return is_old or ttl <= self.latest_ttl_of_archived(now_s)

    def latest_ttl_of_archived(self, now_s: float) -> int:
        """Return the latest `ttl` of an item that the archive may have, by its age."""
        return int(now_s) + self.margin_s + SLACK_S

    def is_soon(self, ttl: int | None, now_s: float) -> bool:
        """Tell whether TTL removes an item soon: not one of a retention that was much longer."""
        return ttl is not None and ttl <= now_s + 2 * self.margin_s


FOR_EVER: Final = Keeping(0, 0, is_by_ttl=False)


def find_ttl(item: Item) -> int | None:
    """Return when TTL may remove an item (seconds); None if never."""
    return int(item[Field.TTL]["N"]) if Field.TTL in item else None


def mend_ttl(item: Item) -> Mend | None:
    """Return what an item whose text ends lacks to be removed."""
    if Field.REV not in item:  # a marker, which stays
        return None
    if Field.EXPIRES_AT not in item or Field.TTL in item:
        return None
    return Mend({Field.TTL: item[Field.EXPIRES_AT]})
