"""Kinds of audit findings, with their meaning and advice. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

Category = Literal["missing", "duplicate", "mismatch", "orphan"]

_PITR = (
    "Do not let the archive move this chat on (stop `worker archive`). Restore the table to a "
    "time before it happened (point-in-time recovery, into another table) and put the items back; "
    "an object of the archive may be in an older version of the bucket."
)

# kind → category, meaning, advice
KINDS: Final[dict[str, tuple[Category, str, str]]] = {
    "item_missing": (
        "missing",
        "no tier has them, and nothing explains it",
        "If Redis was lost just now, open the chat in a client: the server looks for what went "
        "with it and marks the places. " + _PITR,
    ),
    "item_only_in_log": (
        "missing",
        "Redis has them and says they are stored; DynamoDB and S3 do not have them",
        "Act before they leave Redis: raise CHAT_REDIS_LOG_MAX and do not restart it; save the "
        "entries (XRANGE of the chat's log). " + _PITR,
    ),
    "log_missing": (
        "missing",
        "they are committed and not stored, and Redis does not have them",
        "Look whether Redis lost its tail (`epoch` in the logs); senders' devices offer such "
        "messages again. Load the chat (open it in a client): it fills the place with a tombstone.",
    ),
    "object_missing": (
        "missing",
        "the bucket does not have a segment's object",
        "Restore the object from a version of the bucket under the same key; the manifest's "
        "SHA-256 says whether it is right. Until then this range is `unavailable` to readers.",
    ),
    "manifest_hole": (
        "missing",
        "the archive goes beyond them, and has no segment that holds them",
        "The row of a segment is gone from `directory`. Objects without a row, which this audit "
        "names as orphans, may be it: put the row back (point-in-time recovery of `directory`).",
    ),
    "repeated_item": (
        "duplicate",
        "more than one item has this seq",
        "One of them has another `ts` than the chat's log, or stands between neighbours whose ts "
        "do not fit. Compare `mid` with what clients have, keep that one, delete the other item.",
    ),
    "overlap": (
        "duplicate",
        "segments hold the same seqs",
        "One of them is not of the archive's making. Keep those that join without a hole, and "
        "delete the other's row in `directory`; its object is then named as an orphan.",
    ),
    "item_changed": (
        "mismatch",
        "an item is not what was written",
        "Somebody wrote to the table beside the server, or it is damaged. Compare it with an older "
        "state (point-in-time recovery) and put that back; if the change was meant, let a client "
        "edit the message: that writes another checksum.",
    ),
    "item_unreadable": (
        "mismatch",
        "an item is none that the server can read",
        "Its chat cannot be read at this place. Put it back from point-in-time recovery, or "
        "delete it if nothing of ours has it.",
    ),
    "out_of_order": (
        "mismatch",
        "an item's seq does not fit its ts",
        "Treat it as a changed item: find what its neighbours were (point-in-time recovery).",
    ),
    "tiers_differ": (
        "mismatch",
        "two tiers have another message, or another text of the same revision",
        "The log of Redis is right about what was acked, then the item whose checksum is right. "
        "Put that version into the other tier.",
    ),
    "object_changed": (
        "mismatch",
        "a segment's object is not the one that the manifest means",
        "Restore the version of the object whose SHA-256 the manifest names, under the same key. "
        "Until then this range is `unavailable` to readers.",
    ),
    "manifest_top": (
        "mismatch",
        "a segment lies beyond what is said to be archived",
        "Readers do not see it. If the warm tier has these seqs, delete the segment's row; "
        "if not, set `last` and `last_ts` of the row `a#<chat>` to the segment's.",
    ),
    "manifest_unreadable": (
        "mismatch",
        "a row of the archive cannot be read",
        "Put the row back from point-in-time recovery of `directory`. The rest of this chat "
        "was not looked at.",
    ),
    "orphan": (
        "orphan",
        "the bucket has an object that no row names",
        "Nothing reads it. If no segment is missing, delete it; it may hold texts that users "
        "deleted.",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency of the entries ``[first, last]`` of a chat; seq 0 if unknown."""

    kind: str
    chat: str
    first: int
    last: int
    where: str = ""

    @property
    def category(self) -> Category:
        """Label of the metric that counts this finding."""
        return KINDS[self.kind][0]

    @property
    def count(self) -> int:
        """Number of affected entries, at least one."""
        return self.last - self.first + 1

    @property
    def meaning(self) -> str:
        """Explanation of the finding."""
        return KINDS[self.kind][1]

    @property
    def advice(self) -> str:
        """Recommended action."""
        return KINDS[self.kind][2]

    def is_like(self, other: Finding) -> bool:
        """Return whether another check found the same kind in an overlapping range."""
        return (
            self.kind == other.kind
            and self.chat == other.chat
            and self.first <= other.last
            and other.first <= self.last
        )
