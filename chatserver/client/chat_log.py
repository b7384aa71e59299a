"""Message log of one chat: entries, the current version of each message, the last delivered seq.

No I/O. Entries are kept by seq, as received. The current version of a message is the copy with the
highest `rev` plus the later changes in the log, in order. The order in which copies and changes
arrive does not matter.

Invariants: `shown`, the last delivered seq, advances one entry at a time, or jumps over a range
(`skip`). Entries above `shown` wait until the gap is filled and are not visible in `messages`. Only
the newest `kept_max` entries are kept.

In a new epoch (after data loss in Redis), delivered entries are invisible until a page from the
server contains one of them. All entries before the newest matching entry are unchanged, too,
because the server can lose only the end of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from chatserver.client.model import Entry
from chatserver.protocol.expired_messages import apply_expiry
from chatserver.protocol.message_change_effects import (
    MESSAGE_CHANGE_KINDS,
    apply_entry,
    build_tombstone,
    is_message,
)

IDENTITIES_SAVED = 20  # newest entries whose id and time are saved, to compare after a restart


class VerificationResult(msgspec.Struct, frozen=True):
    """The result of comparing a chat's stored entries with the server's in a new epoch."""

    match_seq: int  # the last seq at which client and server have the same entry
    withdrawn: tuple[int, ...]
    is_truncated: bool  # delivered entries after `match_seq` no longer exist
    is_exact: bool  # False: entries up to `match_seq` may have changed, too


def _get_identity(entry: Entry) -> str:
    """Return the identity that distinguishes an entry from others at the same seq.

    A membership entry that the server lost and created again has the same id but another time.
    """
    return f"{entry.mid}:{entry.ts}"


class ReceivedChatLog:
    """The entries of one chat."""

    def __init__(self, kept_max: int) -> None:
        self.shown: int | None = None  # last delivered seq; None: nothing delivered yet
        self.top = 0  # the newest known seq
        self.pushed = 0  # entries pushed from now on have a higher seq
        self.is_unverified = False
        self._kept_max = kept_max
        self._entries: dict[int, Entry] = {}
        self._changes: dict[int, set[int]] = {}  # seq of a message → seqs of its changes
        self._hidden: set[int] = set()  # messages that the user deleted only for themselves
        self._cleared_upto = 0
        self._previous_hidden: set[int] = set()  # messages hidden in the previous epoch
        # Seq → id and time of its entry in the previous epoch.
        self._previous_identities: dict[int, str] = {}
        self._previous_entries: dict[int, Entry] = {}
        self._newest_compared: int | None = None  # newest seq of the first page that was compared

    @property
    def bottom(self) -> int:
        """The oldest seq kept; 0 if there is none."""
        return min(self._entries, default=0)

    @property
    def newest(self) -> int:
        """The newest seq kept, delivered or not; 0 if there is none."""
        return max(self._entries, default=0)

    def find(self, seq: int) -> Entry | None:
        """Return the current version of an entry; None if it is not kept or not delivered."""
        entry = self._entries.get(seq)
        if entry is None or (self.shown is not None and seq > self.shown):
            return None
        for change in sorted(self._changes.get(seq, ())):
            if self.shown is None or change <= self.shown:
                entry = apply_entry(entry, self._entries[change])
        return build_tombstone(entry, entry.rev) if self.is_hidden(seq) else entry

    def find_ref(self, seq: int) -> str | None:
        """Return the `ref` of a kept entry, in a new epoch that of the entry known before."""
        entry = self._previous_entries.get(seq) or self._entries.get(seq)
        return None if entry is None else entry.ref

    def entries(self, now_s: float | None = None) -> list[Entry]:
        """Return all visible entries in order; with `now_s`, expired ones have no text."""
        seen = (self.find(seq) for seq in sorted(self._entries))
        there = [entry for entry in seen if entry is not None]
        return there if now_s is None else [apply_expiry(entry, now_s) for entry in there]

    def messages(self, now_s: float | None = None) -> list[Entry]:
        """Return the visible messages that have not been cleared; `now_s` as in `entries`."""
        upto = self._cleared_upto
        return [entry for entry in self.entries(now_s) if entry.seq > upto and is_message(entry)]

    def count_ignored(self, after: int) -> int:
        """Count the entries above `after` that do not count as unread."""
        return sum(seq > after and self._is_ignored(entry) for seq, entry in self._entries.items())

    def _is_ignored(self, entry: Entry) -> bool:
        is_gone = entry.deleted or self.is_hidden(entry.seq)
        return is_gone or not is_message(entry) or bool(self._list_deletions(entry.seq))

    def _list_deletions(self, seq: int) -> list[int]:
        changes = self._changes.get(seq, ())
        return [change for change in changes if self._entries[change].kind == "delete"]

    def count_deleted_since(self, since: int, first: int, last: int) -> int:
        """Count the messages with seq `first` to `last` that entries after seq `since` delete."""
        gone = {
            entry.target
            for seq, entry in self._entries.items()
            if seq > since and entry.kind == "delete" and entry.target is not None
        }
        return sum(first <= seq <= last for seq in gone)

    def start_after(self, at: int) -> None:
        """Start delivery after seq `at`, if nothing has been delivered yet."""
        if self.shown is not None:
            return
        joined = at
        while joined in self._entries:
            joined -= 1
        for seq in [seq for seq in self._entries if seq <= joined]:
            self._evict(seq)  # a gap separates this entry from later ones
        self.shown = at
        self.record_pushed(at)

    def undo_start(self, at: int) -> None:
        """Undo `start_after(at)` if no entry has been stored since."""
        if self.shown == at and not self._entries and not self.is_unverified:
            self.shown = None
            self.top = self.pushed = 0

    def record_pushed(self, seq: int) -> None:
        """Record that all entries pushed from now on have a seq above `seq`."""
        self.pushed = max(self.pushed, seq)
        self.top = max(self.top, seq)

    def is_adjacent(self, seq: int) -> bool:
        """Return False if there would be a gap between entry `seq` and the oldest kept entry."""
        if self.shown is None or self.is_unverified or seq > self.shown:
            return True
        return seq >= (self.bottom or self.shown + 1) - 1

    def put(self, entry: Entry) -> None:
        """Store an entry, unless a newer copy is stored."""
        self.top = max(self.top, entry.seq)
        known = self._entries.get(entry.seq)
        if known is not None and (known.rev, known.deleted) >= (entry.rev, entry.deleted):
            return
        self._entries[entry.seq] = entry
        if entry.kind in MESSAGE_CHANGE_KINDS and entry.target is not None:
            self._changes.setdefault(entry.target, set()).add(entry.seq)

    def is_hidden(self, seq: int) -> bool:
        """Return whether the user has deleted a kept message for themselves, or cleared it."""
        return seq <= self._cleared_upto or seq in self._hidden

    def is_hidden_by(self, copy: Entry) -> bool:
        """Return whether the server's copy of a visible message shows that the user deleted it."""
        stored = self.find(copy.seq)
        return (
            copy.deleted
            and stored is not None
            and not stored.deleted
            and copy.rev <= (self.shown or 0)
        )

    def hide(self, seqs: list[int]) -> None:
        """Show these messages as deleted, even if their text is stored."""
        self._hidden.update(seqs)

    def clear(self, upto: int) -> None:
        """Evict the delivered entries up to seq `upto`, and hide later copies of them."""
        self._cleared_upto = upto
        end = upto if self.shown is None else min(upto, self.shown)
        for seq in [seq for seq in self._entries if seq <= end]:
            self._evict(seq)

    def put_page(self, page: list[Entry], before: int | None = None) -> None:
        """Store a page of history if it is adjacent to the stored entries.

        A page requested with `before` counts as adjacent to entry `before`, even if seqs between
        them are missing: the user has no access to the missing entries.
        """
        if not page or self.is_unverified:
            return
        if self._entries:
            is_adjacent = max(page[-1].seq, (before or 0) - 1) >= self.bottom - 1
        else:
            is_adjacent = self.shown is None or page[-1].seq >= self.shown
        if is_adjacent:
            for entry in page:
                self.put(entry)
            if self.shown is None or not self.has_gap:
                self.trim()

    def advance(self) -> Iterator[Entry]:
        """Advance seq `shown` to the next gap; yield the entries up to there."""
        while not self.is_unverified and self.shown is not None:
            entry = self._entries.get(self.shown + 1)
            if entry is None:
                break
            self.shown += 1
            yield entry
        self.trim()

    def trim(self) -> None:
        """Evict cleared entries, then the oldest ones until at most `kept_max` are left."""
        if self._cleared_upto:
            self.clear(self._cleared_upto)
        surplus = len(self._entries) - self._kept_max
        if surplus > 0:
            for seq in sorted(self._entries)[:surplus]:
                self._evict(seq)

    def _evict(self, seq: int) -> None:
        entry = self._entries.pop(seq)
        self._hidden.discard(seq)
        self._changes.pop(seq, None)
        if entry.target is not None and entry.target in self._changes:
            self._changes[entry.target].discard(seq)

    @property
    def has_gap(self) -> bool:
        """True if entries after `shown` are missing."""
        return not self.is_unverified and self.shown is not None and self.shown < self.top

    def skip(self, upto: int) -> None:
        """Set `shown` to `upto`, and evict all entries up to it, to leave no gap."""
        assert self.shown is not None
        for seq in [seq for seq in self._entries if seq <= upto]:
            self._evict(seq)
        self.shown = max(self.shown, upto)
        self.top = max(self.top, self.shown)

    def find_gap_end(self) -> int:
        """Return the last missing seq of the next gap."""
        assert self.shown is not None
        waiting = [seq for seq in self._entries if seq > self.shown]
        return min(waiting) - 1 if waiting else self.top

    def mark_unverified(self) -> None:
        """Mark all entries as unverified: the server may have lost the newest ones."""
        if self.shown is not None and not self.is_unverified:
            self._previous_identities |= {
                seq: _get_identity(entry) for seq, entry in self._entries.items()
            }
            self._previous_entries = dict(self._entries)
            self._previous_hidden |= self._hidden
            self.is_unverified = True
        self._entries.clear()
        self._changes.clear()
        self._hidden.clear()
        self._newest_compared = None
        self.top = self.pushed = 0

    def verify(self, page: list[Entry], *, has_older: bool) -> VerificationResult | None:
        """Compare the stored entries with the server's: first its newest page, then older pages.

        Return None if the next older page is needed.
        """
        if self._newest_compared is None:
            self._newest_compared = page[-1].seq if page else 0
        for entry in page:
            self.put(entry)
        same = [e.seq for e in page if self._previous_identities.get(e.seq) == _get_identity(e)]
        if same:
            return self._finish_verification(max(same), is_exact=True)
        oldest = min(self._previous_identities, default=(self.shown or 0) + 1)
        first = page[0].seq if page else 1
        if page and has_older and first > oldest:
            return None
        # No entry with a known identity matches. Older ones are assumed to be unchanged.
        match_seq = min(oldest - 1, self._newest_compared, self._find_first_moved() - 1)
        return self._finish_verification(max(match_seq, first - 1), is_exact=match_seq <= 0)

    def _find_first_moved(self) -> int:
        """Return the lowest seq of an entry that the server lost and created again.

        Such an entry has the id of an entry of the previous epoch, but another seq or time. The
        server lost all entries from that seq on. If there is no such entry, return `top + 1`.
        """
        ids = {identity.partition(":")[0] for identity in self._previous_identities.values()}
        return min((s for s, e in self._entries.items() if e.mid in ids), default=self.top + 1)

    def _finish_verification(self, match_seq: int, *, is_exact: bool) -> VerificationResult:
        assert self.shown is not None
        withdrawn = tuple(
            sorted(seq for seq in self._previous_identities if match_seq < seq <= self.shown)
        )
        self._restore_entries(match_seq)
        is_truncated, self.shown = match_seq < self.shown, min(self.shown, match_seq)
        self.is_unverified = False
        self._previous_identities.clear()
        self._previous_entries.clear()
        self._previous_hidden.clear()
        return VerificationResult(match_seq, withdrawn, is_truncated, is_exact)

    def _restore_entries(self, match_seq: int) -> None:
        """Restore the entries up to seq `match_seq` that were stored before the comparison.

        Copies that contain a lost change are not restored.
        """
        for seq in sorted(
            (seq for seq in self._previous_entries if seq <= match_seq), reverse=True
        ):
            entry = self._previous_entries[seq]
            if seq in self._previous_hidden:
                self._hidden.add(seq)
            if entry.rev <= match_seq:
                self.put(entry)
            elif seq not in self._entries:
                break

    def abort_verification(self) -> VerificationResult:
        """Stop the comparison and continue with the entries received in the new epoch."""
        first = self.bottom or self.top + 1
        result = self._finish_verification(0, is_exact=False)
        self.shown = first - 1
        return msgspec.structs.replace(result, match_seq=self.shown, is_truncated=True)

    def get_newest_identities(self, upto: int) -> dict[int, str]:
        """Return `{seq: identity}` of the newest entries up to `upto`, to compare them later."""
        known = dict(self._previous_identities)
        if not self.is_unverified:
            known |= {seq: _get_identity(entry) for seq, entry in self._entries.items()}
        seqs = sorted(seq for seq in known if seq <= upto)
        return {seq: known[seq] for seq in seqs[-IDENTITIES_SAVED:]}

    def put_cached(self, entries: list[Entry]) -> None:
        """Store entries from the cache, which were delivered and have no gap up to `shown`."""
        for entry in entries:
            self.put(entry)
        self.trim()

    def refresh(self, entries: Iterable[Entry]) -> None:
        """Replace stored entries with newer copies; ignore entries that are not stored."""
        for entry in entries:
            if entry.seq in self._entries:
                self.put(entry)

    def restore(self, shown: int, top: int, mids: Iterable[tuple[int, str]]) -> None:
        """Restore the delivery position of an earlier process.

        The entries above `shown` are loaded again, or pushed again if they were not consumed.
        """
        self.shown = self.pushed = shown
        self.top = top
        self._previous_identities = dict(mids)
