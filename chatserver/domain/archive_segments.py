"""Archive segments: each holds a range of a chat's entries in one S3 object. No I/O.

A chat's segments start at seq 1, do not overlap and leave no gaps.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.domain.ids import ChatId, Seq, Ts

PREFIX: Final = "archive/v1"
# Kind of the placeholder for a chat's newest entry, if that entry is only in the archive.
ARCHIVED_KIND: Final = "archived"
LOST_KIND: Final = "lost"  # kind of the tombstone for an entry that was lost before it was stored
# Sort key prefix of items that record which archive segments have a user's messages.
TRAIL_PREFIX: Final = "archived#"


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveSegment:
    """A segment in a chat's manifest; `decode_segment` checks its S3 object against this data.

    `tag` identifies one version of the object. If the entries change, a new object with a new tag
    is written, so objects never change and keys are never reused.
    """

    chat: ChatId
    first: Seq
    last: Seq
    first_ts: Ts
    last_ts: Ts
    raw_bytes: int  # size of the JSON lines before compression
    stored_bytes: int  # size of the object in bytes
    sha256: str  # SHA-256 of the object, hexadecimal
    tag: str = ""

    @property
    def key(self) -> str:
        tag = f".{self.tag}" if self.tag else ""
        return f"{PREFIX}/{self.chat}/{self.first:020d}-{self.last:020d}{tag}.jsonl.zst"

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """Archived entries `first` to `last`, restored to the warm tier for a limited time."""

    first: Seq
    last: Seq
    first_ts: Ts
    last_ts: Ts
    until: int  # when the restoration ends, seconds since 1970
    done: int  # entries `first` to `done` have been restored so far
    is_ending: bool = False  # True while the restored items are being removed

    def is_kept(self, now_s: float) -> bool:
        """Return whether the restored entries must still be kept."""
        return not self.is_ending and self.until > now_s

    def has_entry(self, seq: int, now_s: float) -> bool:
        """Return whether entry `seq` is restored and can be read from the warm tier."""
        return self.first <= seq <= self.done and self.is_kept(now_s)


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveTop:
    """Seq and ts of a chat's last archived entry, and the ranges restored from the archive."""

    seq: Seq
    ts: Ts
    restored: tuple[Restored, ...] = ()


NOTHING_ARCHIVED: Final = ArchiveTop(Seq(0), Ts(0))
