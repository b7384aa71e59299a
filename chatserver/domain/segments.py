"""What the archive says of its segments: runs of a chat's entries in one object each. No I/O.

Segments of a chat do not overlap and leave no hole: the first begins with seq 1, each other one
where the one before it ends.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.domain.ids import ChatId, Seq, Ts

PREFIX: Final = "archive/v1"
ARCHIVED_KIND: Final = "archived"  # of what stands for a newest entry of which the place is known
LOST_KIND: Final = "lost"  # of what stands for an entry that no tier has any more
TRAIL_PREFIX: Final = "archived#"  # of what leads from a user to segments with his words


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """What the manifest says of an object; what `decode_segment` holds the object against.

    `tag` names one writing of these entries: what is written again, because an entry changed, gets
    another one, so that an object never changes and a name that was given up never comes back.
    """

    chat: ChatId
    first: Seq
    last: Seq
    first_ts: Ts
    last_ts: Ts
    raw_bytes: int  # of the lines
    stored_bytes: int  # of the object
    sha256: str  # of the object, in hexadecimal digits
    tag: str = ""

    @property
    def key(self) -> str:
        """The object's key."""
        tag = f".{self.tag}" if self.tag else ""
        return f"{PREFIX}/{self.chat}/{self.first:020d}-{self.last:020d}{tag}.jsonl.zst"

    @property
    def count(self) -> int:
        """How many entries it has."""
        return self.last - self.first + 1


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """Archived entries that were brought back to the warm tier for a while; inclusive both ends."""

    first: Seq
    last: Seq
    first_ts: Ts
    last_ts: Ts
    until: int  # seconds since 1970
    done: int  # up to here they are back
    is_ending: bool = False  # somebody takes them away

    def is_kept(self, now_s: float) -> bool:
        """Tell whether they are to stay in the warm tier."""
        return not self.is_ending and self.until > now_s

    def serves(self, seq: int, now_s: float) -> bool:
        """Tell whether the warm tier has an entry of the archive."""
        return self.first <= seq <= self.done and self.is_kept(now_s)


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveTop:
    """How far a chat is in the archive: the last entry's place, and what was restored of it."""

    seq: Seq
    ts: Ts
    restored: tuple[Restored, ...] = ()


NOTHING_ARCHIVED: Final = ArchiveTop(Seq(0), Ts(0))
