"""Rules for the log of a chat: each acked operation once, at its seq, in order."""

from __future__ import annotations

from collections.abc import Iterator

from chatserver.domain.seq_gap_checks import is_contiguous, iter_not_ascending, list_missing_seqs
from tests.support.history.events import (
    CHANGES_OF_CHATS,
    ENTRY_OF,
    Delivered,
    LogEntry,
    Requested,
    Responded,
)
from tests.support.history.index import HistoryIndex, Key
from tests.support.history.violation import Violation, name_of

# errors.py defines `unavailable` as an unknown outcome: the request may have succeeded.
UNKNOWN_OUTCOMES = frozenset({"unavailable", "internal"})


def find_lost(index: HistoryIndex) -> Iterator[Violation]:
    for (chat, user, ref), answer in index.done.items():
        asked = index.asked.get((chat, user, ref))
        if asked is None or asked.kind == "hide":
            continue
        if asked.kind in CHANGES_OF_CHATS:
            if not _is_change_done(index, asked, answer):
                yield Violation("P1", f"{asked.kind} {user}/{ref} of {chat} is not in the log")
            continue
        if asked.kind == "delete" and not answer.mid:  # the message had been deleted before
            log = index.logs.get(chat, ())
            if not any((e.kind, e.target) == ("delete", asked.target) for e in log):
                yield Violation("P1", f"delete {user}/{ref} of {chat}#{asked.target} is lost")
            continue
        yield from _find_wrong_ack(index, asked, answer)
    for answer in index.history.acks():  # a retry is acked like the first attempt
        asked = index.asked.get((answer.chat, answer.user, answer.ref))
        if asked is not None and asked.kind == "send" and answer.dup:
            yield from _find_wrong_ack(index, asked, answer)


def _find_wrong_ack(
    index: HistoryIndex, asked: Requested, answer: Responded
) -> Iterator[Violation]:
    chat, user, ref = answer.chat, answer.user, answer.ref
    entry = index.at(chat, answer.seq)
    acked = (answer.seq, answer.ts, answer.mid, user, ref, ENTRY_OF[asked.kind])
    if entry is None or entry.place != acked:
        there = "nothing" if entry is None else name_of(chat, entry)
        yield Violation("P1", f"acked {asked.kind} {user}/{ref} at {chat}#{answer.seq}: {there}")


def _is_change_done(index: HistoryIndex, asked: Requested, answer: Responded) -> bool:
    """Return whether a change is in the log, or was a membership change without effect."""
    log = index.logs.get(asked.chat, ())
    is_there = any((e.sender, e.ref) == (asked.user, asked.ref) for e in log)
    if is_there or asked.kind == "update":
        return is_there
    # It was applied after the entries known at the request and before later requests. Entries that
    # a device received and Redis lost prove nothing about seqs in the log.
    places = {(entry.seq, entry.mid) for entry in log}
    delivered = (
        s for s in index.history.events if isinstance(s, Delivered) and s.chat == asked.chat
    )
    seen = (s.entry for s in delivered if s.t < asked.t)
    first = max((e.seq for e in seen if (e.seq, e.mid) in places), default=0)
    asks = {entry.seq: index.asked.get((asked.chat, entry.sender, entry.ref)) for entry in log}
    later = (seq for seq, ask in asks.items() if ask is not None and ask.t > answer.t)
    last = min(later, default=len(log) + 1)
    periods, subject = index.of(asked.chat), asked.subject or asked.user
    wants_in = asked.kind in {"invite", "join"}
    return any(
        periods.is_member_after(subject, seq) == wants_in for seq in range(max(first, 1), last)
    )


def find_not_once(index: HistoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        places: dict[tuple[str, str], int] = {}
        for entry in log:
            if index.has_losses and entry.is_loss_tombstone:
                continue
            asked = index.first_attempt(chat, entry)
            if asked is None:
                yield Violation("P2", f"{name_of(chat, entry)} was never requested")
            elif ENTRY_OF.get(asked.kind) != entry.kind:
                yield Violation("P2", f"{name_of(chat, entry)} was requested as {asked.kind}")
            elif (asked.target or None) != entry.target:
                yield Violation("P2", f"{name_of(chat, entry)} has another target: {entry.target}")
            code = _find_final_refusal(index, (chat, entry.sender, entry.ref))
            if code and not _may_be_both(index, entry, chat):
                yield Violation("P2", f"{name_of(chat, entry)} was refused permanently ({code})")
            before = places.setdefault((entry.sender, entry.ref), entry.seq)
            if before != entry.seq:
                yield Violation("P2", f"{name_of(chat, entry)} is also at #{before}")


def find_changes_of_other_messages(index: HistoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        for entry in log:
            key = (chat, entry.sender, entry.ref)
            if other := index.find_wrong_target(key, entry.target or 0):
                text = f"{name_of(chat, entry)} changes {name_of(chat, other)}"
                yield Violation("P10", f"{text}, not the message {index.named[key]}")


def _find_final_refusal(index: HistoryIndex, key: Key) -> str:
    """Return the error code of an operation of which each attempt was refused permanently."""
    attempts = index.attempts[key]
    # a `conflict` may refer to another body of an earlier attempt
    may_conflict = len({attempt.body for attempt in attempts}) > 1
    unknown = UNKNOWN_OUTCOMES | ({"conflict"} if may_conflict else set())
    codes = [refusal.code for refusal in index.refused[key] if refusal.code not in unknown]
    is_final = key not in index.done and len(codes) >= max(1, len(attempts))
    return codes[0] if is_final else ""


def _may_be_both(index: HistoryIndex, entry: LogEntry, chat: str) -> bool:
    """Return whether a completed operation may have been refused on retry.

    A former member gets no confirmation of a change, because the chat does not exist for them.
    """
    log, periods = index.logs[chat], index.of(chat)
    was_removed = any(not periods.covers(entry.sender, e.seq) for e in log[entry.seq :])
    has_left = periods.open_since(entry.sender) is None
    return entry.kind in {"member", "update"} and (was_removed or has_left)


def find_phantoms(index: HistoryIndex) -> Iterator[Violation]:
    """Find observed messages with a body that nobody sent, or with that of a refused attempt."""
    edits = [asked for asked in index.asked.values() if asked.kind == "edit"]
    bodies = {(edit.chat, edit.target, edit.body) for edit in edits}
    edited = {(edit.chat, edit.target) for edit in edits}
    for sighting in index.sightings:
        if sighting.t is None:
            continue  # P10 checks what was read at the end
        chat, entry = sighting.chat, sighting.entry
        attempts = index.attempts.get((chat, entry.sender, entry.ref), ())
        if entry.kind != "text" or entry.deleted or (chat, entry.seq, entry.body) in bodies:
            continue
        stored = index.at(chat, entry.seq)
        is_original = (chat, entry.seq) not in edited and stored is not None and not stored.deleted
        if is_original and stored is not None and stored.body != entry.body:
            text = f"{sighting.where}: {name_of(chat, entry)} has another body than in DynamoDB"
            yield Violation("P2", text)
        elif not any(attempt.body == entry.body for attempt in attempts):
            text = f"{sighting.where}: {name_of(chat, entry)} has a body that was never sent"
            yield Violation("P2", text)


def find_out_of_order(index: HistoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        seqs = [entry.seq for entry in log]
        if chat in index.stored and not is_contiguous([0, *seqs]):
            holes = list_missing_seqs(seqs)
            yield Violation("P3", f"DynamoDB: {chat} is not 1..{max(seqs)}, {holes} are missing")
        for at in iter_not_ascending(entry.ts for entry in log):
            yield Violation("P3", f"{name_of(chat, log[at])} is not later than {log[at - 1].seq}")
    for sighting in index.sightings:
        chat, entry = sighting.chat, sighting.entry
        stored = index.at(chat, entry.seq)
        if stored is None:
            text = f"{sighting.where}: {name_of(chat, entry)} is not in DynamoDB"
            yield Violation("P3", text)
        elif stored.place != entry.place:
            text = (
                f"{sighting.where}: {name_of(chat, entry)} is {name_of(chat, stored)} in DynamoDB"
            )
            yield Violation("P3", text)


def find_session_order_faults(index: HistoryIndex) -> Iterator[Violation]:
    # Only sends committed on this connection count, because a `dup` got its seq earlier.
    acks = {(ack.conn, ack.chat, ack.ref): ack for ack, _ in index.placed_acks() if not ack.dup}
    refused = {(each.conn, each.chat, each.ref) for each in index.history.refusals()}
    last: dict[tuple[int, str], Responded] = {}
    for request in index.history.all_of(Requested):
        key = (request.conn, request.chat, request.ref)
        ack = acks.pop(key, None) if request.conn else None
        if ack is None or key in refused:
            continue
        before = last.get(key[:2])
        if before is not None and ack.seq < before.seq:
            text = f"{ack.ref} of {ack.chat} was sent after {before.ref} on one connection"
            yield Violation("I7", f"{text}, but is at #{ack.seq} and {before.ref} at #{before.seq}")
        last[key[:2]] = ack


def find_real_time_faults(index: HistoryIndex) -> Iterator[Violation]:
    known_at: dict[tuple[str, int], float] = {}
    for place, t in _iter_known(index):
        known_at[place] = min(t, known_at.get(place, t))
    for chat, log in index.logs.items():
        earliest: tuple[float, LogEntry] | None = None
        # From the newest seq down: no entry may have been known before an earlier one was sent.
        for entry in reversed(log):
            asked = index.first_attempt(chat, entry)
            if earliest is not None and asked is not None and earliest[0] < asked.t:
                known, name = name_of(chat, earliest[1]), name_of(chat, entry)
                text = f"{known} was known before {name} was sent, but has a higher seq"
                yield Violation("I8", text)
            t = known_at.get((chat, entry.seq))
            if t is not None and (earliest is None or t < earliest[0]):
                earliest = (t, entry)


def _iter_known(index: HistoryIndex) -> Iterator[tuple[tuple[str, int], float]]:
    for sighting in index.sightings:
        if sighting.t is not None:
            yield (sighting.chat, sighting.entry.seq), sighting.t
    for ack, _ in index.placed_acks():
        yield (ack.chat, ack.seq), ack.t
