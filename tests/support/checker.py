"""Offline checker: reports the guarantees violated by a recorded run.

It does no I/O and reads no clock; the input is a `Run` of `tests.support.observations`. It checks
these invariants (I) of the fault list and guarantees (P) of the design:

| rule | violated when                                                                            |
|------|------------------------------------------------------------------------------------------|
| VOID | nothing was acked, or a final read is missing, so the run proves nothing                 |
| I1   | an acked message is missing in a final history or in the warm tier                       |
| I2   | an observed message was never sent with that content                                     |
| I3   | one (sender, chat, ref) has two seqs, or a list repeats a seq                            |
| I4   | a final history is not exactly 1..N                                                      |
| I5   | a (chat, seq) refers to two different messages, for any user, in any tier                |
| I6   | a device received a chat's messages out of order                                         |
| I7   | pipelined sends on one connection got seqs in another order                              |
| I8   | a message comes after one that was sent when it was already known                        |
| I9   | a page has a gap, or lacks messages that were known when it was requested                |
| I11  | a message exists although each of its attempts was permanently refused                   |
| I12  | a user who is not a member received something                                            |
| I14  | a mark moved back or beyond the head, or an unread count is wrong at the end             |
| I18  | a device never received a message that it should have received                           |
| P3   | timestamps do not increase with seq                                                      |
| P4   | a device's inbox events have a gap, a repeat or a step back                              |
| WARM | the warm tier and the history have different messages                                    |

Each fault is reported only under the most specific rule: a missing acked message is I1 and not
also I4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from chatserver.domain.seq_gap_checks import is_contiguous, iter_repeats, list_missing_seqs
from tests.support.observations import (
    Acked,
    AnyObservation,
    FinalHistory,
    Listed,
    Marked,
    PageRead,
    Pushed,
    Refused,
    Row,
    Run,
    Sent,
    Signalled,
    Started,
    WarmRows,
)

# errors.py defines `unavailable` as an unknown outcome: the request may have succeeded.
UNKNOWN_OUTCOMES = frozenset({"unavailable", "internal"})


class Violation(NamedTuple):
    """A violated guarantee and its description."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(run: Run) -> list[Violation]:
    """Return every violation, deterministically for the same run."""
    index = _Index(run)
    violations: list[Violation] = []
    for rule in _RULES:
        violations.extend(rule(index))
    return violations


def find_undelivered(run: Run) -> list[Violation]:
    """Return the messages that have not arrived yet (I18), for polling."""
    return list(_is_undelivered(_Index(run)))


def report(violations: Sequence[Violation], shown_max: int = 40) -> str:
    """Format the violations: the count of each rule, then the first violations."""
    counts: dict[str, int] = defaultdict(int)
    for violation in violations:
        counts[violation.rule] += 1
    lines = [", ".join(f"{rule} x {count}" for rule, count in sorted(counts.items()))]
    lines += [str(violation) for violation in violations[:shown_max]]
    if len(violations) > shown_max:
        lines.append(f"… and {len(violations) - shown_max} more")
    return "\n".join(lines)


class _Sighting(NamedTuple):
    row: Row
    t: float
    where: str


class _Index:
    """The run, grouped once for all rules."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sent: dict[tuple[str, str, str], list[Sent]] = defaultdict(list)
        self.acked: dict[tuple[str, str, str], list[Acked]] = defaultdict(list)
        self.refused: dict[tuple[str, str, str], list[Refused]] = defaultdict(list)
        self.devices: dict[tuple[str, str], list[Started | Pushed]] = defaultdict(list)
        self.finals: dict[tuple[str, str], FinalHistory] = {}
        self.warm: dict[str, WarmRows] = {}
        self.pages: list[PageRead] = []
        self.sightings: list[_Sighting] = []
        for observation in run.seen:
            self._add(observation)
        # The first observation at each seq; I5 reports all that differ from it.
        self.places: dict[tuple[str, int], _Sighting] = {}
        self.known_at: dict[tuple[str, int], float] = {}
        for sighting in self.sightings:
            place = (sighting.row.chat, sighting.row.seq)
            self.places.setdefault(place, sighting)
            self.known_at[place] = min(sighting.t, self.known_at.get(place, sighting.t))
        self.heads: dict[str, int] = defaultdict(int)
        for chat, seq in self.places:
            self.heads[chat] = max(self.heads[chat], seq)

    def _add(self, seen: AnyObservation) -> None:
        match seen:
            case Sent():
                self.sent[seen.user, seen.chat, seen.ref].append(seen)
            case Acked():
                self.acked[seen.user, seen.chat, seen.ref].append(seen)
                self._add_sighting([seen.row], seen.t, f"ack to {seen.user}")
            case Refused():
                self.refused[seen.user, seen.chat, seen.ref].append(seen)
            case Started():
                self.devices[seen.user, seen.device].append(seen)
            case Pushed():
                self.devices[seen.user, seen.device].append(seen)
                if seen.row is not None:
                    self._add_sighting([seen.row], seen.t, f"push to {seen.user}/{seen.device}")
            case PageRead():
                self.pages.append(seen)
                self._add_sighting(seen.rows, seen.t, f"{seen.tier} page of {seen.user}")
            case FinalHistory():
                self.finals[seen.user, seen.chat] = seen
                self._add_sighting(seen.rows, seen.t, f"final history of {seen.user}")
            case WarmRows():
                self.warm[seen.chat] = seen
                self._add_sighting(seen.rows, seen.t, "warm tier")
            case _:
                pass

    def _add_sighting(self, rows: Iterable[Row], t: float, where: str) -> None:
        self.sightings.extend(_Sighting(row, t, where) for row in rows)

    def acked_places(self) -> Iterator[tuple[tuple[str, int], Acked]]:
        """Yield each acked seq with its first ack."""
        for acks in self.acked.values():
            for seq, first in {ack.seq: ack for ack in reversed(acks)}.items():
                yield (first.chat, seq), first

    def first_sent(self, row: Row) -> float | None:
        """Return the time of the first attempt, or None for a phantom message."""
        tries = self.sent.get((row.sender, row.chat, row.ref))
        return tries[0].t if tries else None


def _name(row: Row) -> str:
    return f"{row.sender}/{row.ref} at {row.chat}#{row.seq}"


def _find_void(index: _Index) -> Iterator[Violation]:
    if not index.acked:
        yield Violation("VOID", "no message was acked")
    for chat, members in sorted(index.run.members.items()):
        for user in sorted(members):
            if (user, chat) not in index.finals:
                yield Violation("VOID", f"no final history of {chat} for {user}")
        if chat not in index.warm:
            yield Violation("VOID", f"the warm tier was not read for {chat}")


def _is_lost(index: _Index) -> Iterator[Violation]:
    held: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    for (user, chat), final in index.finals.items():
        held[chat][f"the final history of {user}"] = {row.mid: row.seq for row in final.rows}
    for chat, warm in index.warm.items():
        held[chat]["the warm tier"] = {row.mid: row.seq for row in warm.rows}
    for (chat, seq), ack in sorted(index.acked_places(), key=lambda item: item[0]):
        for where, seqs in held[chat].items():
            if ack.mid not in seqs:
                part = _part(seq, set(seqs.values()))
                yield Violation("I1", f"acked {_name(ack.row)} is not in {where} ({part})")


def _part(seq: int, seqs: set[int]) -> str:
    if not seqs:
        return "all of it"
    if seq > max(seqs):
        return "postfix"
    return "prefix" if seq < min(seqs) else "middle"


def _is_phantom(index: _Index) -> Iterator[Violation]:
    for row, _, where in index.sightings:
        bodies = {sent.body for sent in index.sent.get((row.sender, row.chat, row.ref), ())}
        if not bodies:
            yield Violation("I2", f"{where}: {_name(row)} was never sent")
        elif row.body not in bodies:
            yield Violation("I2", f"{where}: {_name(row)} has a body that was never sent")


def _is_duplicate(index: _Index) -> Iterator[Violation]:
    seqs: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for row, _, _ in index.sightings:
        seqs[row.sender, row.chat, row.ref].add(row.seq)
    for (sender, chat, ref), places in sorted(seqs.items()):
        if len(places) > 1:
            yield Violation("I3", f"{sender}/{ref} has several seqs in {chat}: {sorted(places)}")
    lists: list[tuple[str, FinalHistory | WarmRows]]
    lists = [(f"final history of {user}", final) for (user, _), final in index.finals.items()]
    lists += [("warm tier", warm) for warm in index.warm.values()]
    for where, final in lists:
        for seq in iter_repeats(row.seq for row in final.rows):
            yield Violation("I3", f"{where}: {final.chat}#{seq} is repeated")


def _has_hole(index: _Index) -> Iterator[Violation]:
    acked = {place for place, _ in index.acked_places()}
    for (user, chat), final in sorted(index.finals.items()):
        for seq in list_missing_seqs([row.seq for row in final.rows]):
            if (chat, seq) not in acked:
                yield Violation("I4", f"final history of {user}: {chat}#{seq} is missing")
        order = [row.seq for row in final.rows]
        if order != sorted(order):
            yield Violation("I4", f"final history of {user}: {chat} is not sorted by seq")


def _is_rewritten(index: _Index) -> Iterator[Violation]:
    for row, _, where in index.sightings:
        first = index.places[row.chat, row.seq]
        if row == first.row:
            continue
        if msgspec.structs.replace(row, body=first.row.body) == first.row:
            sent = {s.body for s in index.sent.get((row.sender, row.chat, row.ref), ())}
            if not {row.body, first.row.body} <= sent:
                continue  # the same message with another body is I2
        yield Violation(
            "I5",
            f"{where}: {row.chat}#{row.seq} is {row.sender}/{row.ref} mid {row.mid} ts {row.ts},"
            f" but {first.where} had {first.row.sender}/{first.row.ref}"
            f" mid {first.row.mid} ts {first.row.ts}",
        )


def _is_out_of_order_at_device(index: _Index) -> Iterator[Violation]:
    for (user, device), steps in sorted(index.devices.items()):
        last: dict[tuple[str, str], int] = defaultdict(int)
        for step in steps:
            if not isinstance(step, Pushed) or step.row is None:
                continue
            key = (step.epoch, step.chat)
            if step.row.seq <= last[key]:
                yield Violation(
                    "I6", f"{user}/{device} received {_name(step.row)} after #{last[key]}"
                )
            last[key] = max(last[key], step.row.seq)


def _breaks_session_order(index: _Index) -> Iterator[Violation]:
    # Only sends committed on this connection count, because a `dup` got its seq earlier.
    place: dict[tuple[int, str, str], Acked] = {}
    for acks in index.acked.values():
        for ack in acks:
            if not ack.dup:
                place[ack.conn, ack.chat, ack.ref] = ack
    last: dict[tuple[int, str], Acked] = {}
    for seen in index.run.seen:
        if not isinstance(seen, Sent):
            continue
        key = (seen.conn, seen.chat, seen.ref)
        if key not in place:
            continue
        ack = place.pop(key)
        if _was_refused(index, ack):
            continue
        before = last.get((seen.conn, seen.chat))
        if before is not None and ack.seq < before.seq:
            yield Violation(
                "I7", f"{_name(ack.row)} was sent after {_name(before.row)} on one connection"
            )
        last[seen.conn, seen.chat] = ack


def _was_refused(index: _Index, ack: Acked) -> bool:
    refusals = index.refused.get((ack.user, ack.chat, ack.ref), ())
    return any(refusal.conn == ack.conn for refusal in refusals)


def _breaks_real_time(index: _Index) -> Iterator[Violation]:
    # From the newest seq down: no message may have been known before an earlier one was sent.
    earliest: dict[str, tuple[float, Row]] = {}
    for place in sorted(index.places, reverse=True):
        row = index.places[place].row
        sent_at = index.first_sent(row)
        known = earliest.get(row.chat)
        if known is not None and sent_at is not None and known[0] < sent_at:
            yield Violation(
                "I8",
                f"{_name(known[1])} was known before {_name(row)} was sent, but has a higher seq",
            )
        if known is None or index.known_at[place] < known[0]:
            earliest[row.chat] = (index.known_at[place], row)


def _has_bad_page(index: _Index) -> Iterator[Violation]:
    times: dict[str, list[float]] = defaultdict(list)
    tops: dict[str, list[int]] = defaultdict(lambda: [0])
    for (chat, seq), t in sorted(index.known_at.items(), key=lambda item: item[1]):
        times[chat].append(t)
        tops[chat].append(max(seq, tops[chat][-1]))
    for page in index.pages:
        head = tops[page.chat][bisect_left(times[page.chat], page.asked)]
        name = f"{page.tier} page of {page.chat} for {page.user}"
        seqs = [row.seq for row in page.rows]
        if not is_contiguous(seqs):
            yield Violation("I9", f"{name}: {seqs} is not contiguous")
        elif (missing := _missing_in_page(page, seqs, head)) is not None:
            yield Violation("I9", f"{name}: {missing}; the head known at the request was {head}")


def _missing_in_page(page: PageRead, seqs: list[int], head: int) -> str | None:
    """Return a description of missing entries, given that `head` was known before the request."""
    if page.after is not None:
        if head > page.after and (not seqs or seqs[0] != page.after + 1):
            return f"does not begin at {page.after + 1}"
        if not page.more and max(seqs, default=page.after) < head:
            return "reports no further entries"
        return None
    wanted = head if page.before is None else min(head, page.before - 1)
    if wanted > 0 and (not seqs or seqs[-1] < wanted):
        return f"does not reach {wanted}"
    if page.before is not None and seqs and seqs[-1] >= page.before:
        return f"goes beyond {page.before}"
    if not page.more and seqs and seqs[0] != 1:
        return "reports no further entries"
    return None


def _exists_after_refusal(index: _Index) -> Iterator[Violation]:
    seen = {(row.sender, row.chat, row.ref): where for row, _, where in index.sightings}
    for key, refusals in sorted(index.refused.items()):
        # `conflict` refers to another body with an existing ref
        definite = [r for r in refusals if r.code not in UNKNOWN_OUTCOMES and r.code != "conflict"]
        if len(definite) == len(index.sent[key]) and key in seen:
            sender, chat, ref = key
            yield Violation(
                "I11", f"{sender}/{ref} in {chat} was refused ({definite[0].code}): {seen[key]}"
            )


def _leaks(index: _Index) -> Iterator[Violation]:
    for seen in index.run.seen:
        if not isinstance(seen, Pushed | PageRead | Signalled | Marked | Listed | FinalHistory):
            continue
        is_empty = isinstance(seen, PageRead | FinalHistory) and not seen.rows
        if not is_empty and seen.user not in index.run.members.get(seen.chat, set()):
            yield Violation(
                "I12", f"{type(seen).__name__} of {seen.chat} reached the non-member {seen.user}"
            )
    for row, _, where in index.sightings:
        if row.sender not in index.run.members.get(row.chat, set()):
            yield Violation("I12", f"{where}: {_name(row)} is from a non-member")


def _marks_are_wrong(index: _Index) -> Iterator[Violation]:
    last: dict[tuple[str, str, str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for seen in index.run.seen:
        if isinstance(seen, Marked):
            key = (seen.user, seen.device, seen.chat, seen.of)
            read, received = last[key]
            if seen.read < read or seen.received < received:
                yield Violation("I14", f"{seen.of}'s mark in {seen.chat} moved back at {seen.user}")
            if max(seen.read, seen.received) > index.heads[seen.chat]:
                yield Violation("I14", f"{seen.of}'s mark in {seen.chat} is beyond the head")
            last[key] = (max(read, seen.read), max(received, seen.received))
        elif isinstance(seen, Listed):
            head = index.heads[seen.chat]
            if (seen.top, seen.unread) != (head, head - seen.read):
                yield Violation(
                    "I14",
                    f"{seen.user} lists {seen.chat} with top {seen.top} read {seen.read}"
                    f" unread {seen.unread}, head is {head}",
                )


def _is_undelivered(index: _Index) -> Iterator[Violation]:
    places: dict[str, list[int]] = defaultdict(list)
    for chat, seq in index.places:
        places[chat].append(seq)
    for (user, device), steps in sorted(index.devices.items()):
        shown = {(s.chat, s.row.seq) for s in steps if isinstance(s, Pushed) and s.row}
        starts = [step for step in steps if isinstance(step, Started)]
        for chat, members in index.run.members.items():
            if user not in members:
                continue
            for seq in sorted(places[chat]):
                row = index.places[chat, seq].row
                if (chat, seq) not in shown and _is_due(row, starts, index.first_sent(row)):
                    yield Violation("I18", f"{user}/{device} never received {_name(row)}")


def _is_due(row: Row, starts: list[Started], sent_at: float | None) -> bool:
    """Return whether a device with these starts must have received the message."""
    if not starts or sent_at is None:
        return False
    for start in starts:
        if start.tops is not None and row.chat in start.tops:
            if row.seq <= start.tops[row.chat]:
                return False
        elif sent_at <= start.t:
            return False
    return True


def _ts_does_not_increase(index: _Index) -> Iterator[Violation]:
    last: dict[str, Row] = {}
    for place in sorted(index.places):
        row = index.places[place].row
        before = last.get(row.chat)
        if before is not None and row.ts <= before.ts:
            yield Violation("P3", f"{_name(row)} has ts {row.ts}, #{before.seq} has {before.ts}")
        last[row.chat] = row


def _inbox_has_gap(index: _Index) -> Iterator[Violation]:
    for (user, device), steps in sorted(index.devices.items()):
        epoch, seq = "", -1
        for step in steps:
            is_next = isinstance(step, Started) or (step.epoch, step.seq) == (epoch, seq + 1)
            if not is_next:
                yield Violation(
                    "P4",
                    f"{user}/{device} got event {step.epoch}:{step.seq} after {epoch}:{seq}",
                )
            epoch, seq = step.epoch, step.seq


def _warm_differs(index: _Index) -> Iterator[Violation]:
    acked = {place for place, _ in index.acked_places()}
    for (user, chat), final in sorted(index.finals.items()):
        if chat not in index.warm:
            continue
        shown = {row.seq for row in final.rows}
        stored = {row.seq for row in index.warm[chat].rows}
        for seq in sorted(shown ^ stored):
            if (chat, seq) not in acked:  # a lost acked message is I1
                where = "only in the warm tier" if seq in stored else "not in the warm tier"
                yield Violation("WARM", f"{chat}#{seq}, seen by {user}: {where}")


_RULES = (
    _find_void,
    _is_lost,
    _is_phantom,
    _is_duplicate,
    _has_hole,
    _is_rewritten,
    _is_out_of_order_at_device,
    _breaks_session_order,
    _breaks_real_time,
    _has_bad_page,
    _exists_after_refusal,
    _leaks,
    _marks_are_wrong,
    _is_undelivered,
    _ts_does_not_increase,
    _inbox_has_gap,
    _warm_differs,
)
