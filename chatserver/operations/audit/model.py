"""Kinds of audit findings, with their meaning and advice. No I/O."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Category = Literal["missing", "duplicate", "mismatch", "orphan"]

_PITR = (
    "Stop `worker archive`, so that it does not archive this chat further. Restore the table to an "
    "earlier time (point-in-time recovery into another table) and put the items back, or restore "
    "an older version of the archive object."
)

# Maps a kind of finding to its category, meaning and advice.
KINDS: Final[dict[str, tuple[Category, str, str]]] = {
    "item_missing": (
        "missing",
        "no tier has these messages",
        "If Redis has just lost data, open the chat in a client: the server then repairs the gap "
        "with tombstones. " + _PITR,
    ),
    "item_only_in_log": (
        "missing",
        "Redis records these messages as stored, but DynamoDB and S3 do not have them",
        "Act before they leave Redis: raise CHAT_REDIS_LOG_MAX, do not restart Redis, and save the "
        "entries (XRANGE of the chat's log). " + _PITR,
    ),
    "log_missing": (
        "missing",
        "these messages were committed but not stored, and Redis does not have them",
        "Check whether Redis lost recent writes (`epoch` in the logs). Clients send these "
        "messages again. Open the chat in a client: the server then fills the gap with tombstones.",
    ),
    "object_missing": (
        "missing",
        "the object of a segment is missing from the bucket",
        "Restore a version of the object under the same key, and compare its SHA-256 with the "
        "manifest. Until then, readers get `unavailable` for this range.",
    ),
    "manifest_hole": (
        "missing",
        "no segment contains these messages, although the archive extends beyond them",
        "A segment's row was deleted from `directory`. Its object may be among the orphans "
        "that this audit reports. Restore the row (point-in-time recovery of `directory`).",
    ),
    "day_missing": (
        "missing",
        "the active days of the chat do not include the day of these messages",
        "The list of a user's messages omits them; all other reads return them. Stop "
        "`worker persist`, delete the row `recorded_days#<chat>` of `directory`, and start the "
        "worker. Then the list reads all earlier days of this chat.",
    ),
    "repeated_item": (
        "duplicate",
        "more than one item has this seq",
        "In the wrong item, `ts` differs from the chat's log or is out of order. Compare `mid` "
        "with the message in clients, then delete the wrong item.",
    ),
    "overlap": (
        "duplicate",
        "segments contain the same seqs",
        "One of the segments was not written by the archive worker. Keep the segments that join "
        "without a gap, and delete the row of the other segment in `directory`; its object then "
        "becomes an orphan.",
    ),
    "item_changed": (
        "mismatch",
        "an item differs from what was written",
        "The table is damaged, or something other than the server wrote to it. Restore the item "
        "with point-in-time recovery. If the change was intended, edit the message in a client, "
        "which writes a new checksum.",
    ),
    "item_unreadable": (
        "mismatch",
        "an item is not readable",
        "The chat cannot be read at this position. Restore the item with point-in-time recovery, "
        "or delete it if the server did not write it.",
    ),
    "out_of_order": (
        "mismatch",
        "the seq of an item does not match its ts",
        "Restore the item with point-in-time recovery, as for `item_changed`.",
    ),
    "tiers_differ": (
        "mismatch",
        "two tiers have different messages, or different bodies for the same revision",
        "If the message was acked, the log in Redis is correct; otherwise, the item with the "
        "correct checksum is. Copy that version to the other tier.",
    ),
    "object_changed": (
        "mismatch",
        "the object of a segment does not match the manifest",
        "Restore the object version whose SHA-256 is in the manifest, under the same key. "
        "Until then, readers get `unavailable` for this range.",
    ),
    "manifest_top": (
        "mismatch",
        "a segment lies beyond the end of the archive",
        "Readers do not see it. If the warm tier has these seqs, delete the row of the segment; "
        "if not, copy `last` and `last_ts` of the segment to the row `a#<chat>`.",
    ),
    "stored_behind": (
        "mismatch",
        "DynamoDB has these messages, but Redis does not record them as stored",
        "Senders' devices keep waiting for `stored`, sends with `durability: stored` fail, and the "
        "chat stays in Redis. Send a message to the chat: once it is stored, Redis records all of "
        "them.",
    ),
    "manifest_unreadable": (
        "mismatch",
        "a row of the archive is not readable",
        "Restore the row with point-in-time recovery of `directory`. The rest of this chat was "
        "not audited.",
    ),
    "orphan": (
        "orphan",
        "an object in the bucket has no row in `directory`",
        "It is never read. If no segment is missing, delete it; it may contain messages that "
        "users have deleted.",
    ),
}


class RuleFinding(msgspec.Struct, frozen=True):
    """An inconsistency in a chat, at seqs ``[first, last]``; 0 if the seq is unknown."""

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
        return KINDS[self.kind][1]

    @property
    def advice(self) -> str:
        return KINDS[self.kind][2]

    def is_like(self, other: RuleFinding) -> bool:
        """Return whether two findings are of the same kind and overlap."""
        return (
            self.kind == other.kind
            and self.chat == other.chat
            and self.first <= other.last
            and other.first <= self.last
        )
