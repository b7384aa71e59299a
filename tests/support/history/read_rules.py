"""Rules for reads: histories, pages, the content of messages, read marks and unread counts."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from chatserver.domain.seq_gap_checks import is_contiguous
from tests.support.history.events import (
    Final,
    Kept,
    Line,
    Marked,
    Page,
    ReadMark,
    Stored,
    Unread,
)
from tests.support.history.index import ExpectedMessage, HistoryIndex
from tests.support.history.violation import Violation, name_of


def find_incomplete_histories(index: HistoryIndex) -> Iterator[Violation]:
    for event in index.history.events:
        if isinstance(event, Final):
            periods = index.of(event.chat)
            is_member = periods.open_since(event.user) is not None
            log = index.logs.get(event.chat, ())
            wanted = [e.seq for e in log if is_member and periods.covers(event.user, e.seq)]
            got = [entry.seq for entry in event.entries]
            if got != wanted:
                missing, surplus = sorted(set(wanted) - set(got)), sorted(set(got) - set(wanted))
                text = f"history of {event.chat} for {event.user}: lacks {missing}, has {surplus}"
                yield Violation("P6", text)


def find_page_gaps(index: HistoryIndex) -> Iterator[Violation]:
    for page in index.history.all_of(Page):
        seqs = [entry.seq for entry in page.entries]
        if not is_contiguous(seqs):
            yield Violation("P6", f"a page of {page.chat} for {page.user} is {seqs}")


def find_incomplete_pages(index: HistoryIndex) -> Iterator[Violation]:
    times: dict[str, list[float]] = defaultdict(list)
    tops: dict[str, list[int]] = defaultdict(lambda: [0])
    for t, chat, seq in sorted(_iter_known(index)):
        times[chat].append(t)
        tops[chat].append(max(seq, tops[chat][-1]))
    for page in index.history.all_of(Page):
        seqs = [entry.seq for entry in page.entries]
        if page.asked is None:
            continue
        head = tops[page.chat][bisect_left(times[page.chat], page.asked)]
        if missing := _missing_in_page(page, seqs, head):
            text = f"a page of {page.chat} for {page.user} {missing}"
            yield Violation("P6", f"{text}; the head at the request was {head}")


def _iter_known(index: HistoryIndex) -> Iterator[tuple[float, str, int]]:
    for sighting in index.sightings:
        if sighting.t is not None:
            yield sighting.t, sighting.chat, sighting.entry.seq
    for ack, _ in index.placed_acks():
        yield ack.t, ack.chat, ack.seq


def _missing_in_page(page: Page, seqs: list[int], head: int) -> str:
    """Return a description of missing entries, given that `head` was known before the request."""
    if page.after is not None:
        if head > page.after and (not seqs or seqs[0] != page.after + 1):
            return f"does not begin at {page.after + 1}"
        if not page.has_more and max(seqs, default=page.after) < head:
            return "reports no further entries"
        return ""
    wanted = head if page.before is None else min(head, page.before - 1)
    if wanted > 0 and (not seqs or seqs[-1] < wanted):
        return f"does not reach {wanted}"
    if page.before is not None and seqs and seqs[-1] >= page.before:
        return f"goes beyond {page.before}"
    if not page.has_more and seqs and seqs[0] != 1:
        return "reports no further entries"
    return ""


def find_wrong_content(index: HistoryIndex) -> Iterator[Violation]:
    wanted = {chat: index.messages(chat) for chat in index.logs}
    for event in index.history.events:
        match event:
            case Stored():
                where, since, hidden = "DynamoDB", 1, set[int]()
            case Final():
                where, since = f"history of {event.user}", 1
                hidden = index.hidden_from(event.user, event.chat)
            case Kept():
                # After a membership period has ended, a device receives no further changes.
                where = f"kept by {event.device}"
                since = index.of(event.chat).open_since(event.user) or 2**53
                hidden = index.hidden_from(event.user, event.chat)
            case _:
                continue
        user = "" if isinstance(event, Stored) else event.user
        maybe_hidden = index.maybe_hidden_from(user, event.chat)
        for shown in event.entries:
            message = wanted.get(event.chat, {}).get(shown.seq)
            if message is None or shown.seq < since:
                continue
            if shown.seq in hidden:
                message = ExpectedMessage("", deleted=True)
            if shown.deleted and shown.seq in maybe_hidden:
                continue
            if not message.matches(shown):
                yield Violation(
                    "P10", f"{where}: {name_of(event.chat, shown)} is {shown}, not {message}"
                )


def find_unread(index: HistoryIndex) -> Iterator[Violation]:
    for line in index.history.all_of(Line):
        top = len(index.logs.get(line.chat, ()))
        is_member = index.of(line.chat).open_since(line.user) is not None
        if is_member and (line.top, line.unread) != (top, 0):
            text = f"{line.device} lists {line.chat} with {line.unread} unread of {line.top}"
            yield Violation("P10", f"{text}; all of {top} was read")


def find_wrong_read_marks(index: HistoryIndex) -> Iterator[Violation]:
    known: dict[tuple[str, str], list[ReadMark]] = defaultdict(list)
    for mark in (s for s in index.history.events if isinstance(s, ReadMark)):
        before = known[mark.user, mark.chat]
        highest = max((m.read for m in before if m.t <= mark.asked), default=0)
        top = len(index.logs.get(mark.chat, ()))
        name = f"read mark of {mark.user} in {mark.chat}"
        if mark.read < highest:
            yield Violation("I14", f"{name} moved from {highest} back to {mark.read}")
        if mark.read > top:
            yield Violation("I14", f"{name} is {mark.read}, above {top}")
        if mark.is_final and mark.read != top:
            yield Violation("I14", f"{name} is {mark.read} in DynamoDB, not {top}")
        before.append(mark)


def find_wrong_member_marks(index: HistoryIndex) -> Iterator[Violation]:
    """Find marks of members that moved back at a device, or are beyond the newest entry."""
    last: dict[tuple[str, str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for mark in index.history.all_of(Marked):
        key = (mark.device, mark.chat, mark.of)
        read, received = last[key]
        name = f"mark of {mark.of} in {mark.chat} at {mark.device}"
        if mark.read < read or mark.received < received:
            yield Violation("I14", f"{name} moved back")
        if max(mark.read, mark.received) > len(index.logs.get(mark.chat, ())):
            yield Violation("I14", f"{name} is beyond the newest entry")
        last[key] = (max(read, mark.read), max(received, mark.received))


def find_wrong_counts(index: HistoryIndex) -> Iterator[Violation]:
    for event in index.history.events:
        if not isinstance(event, Unread) or event.chat not in index.logs:
            continue
        since = index.of(event.chat).open_since(event.user)
        if since is None or index.maybe_hidden_from(event.user, event.chat):
            continue
        hidden = index.hidden_from(event.user, event.chat)
        wanted = sum(
            entry.kind == "text"
            and entry.sender != event.user
            and entry.seq > event.read
            and entry.seq >= since
            and not entry.deleted
            and entry.seq not in hidden
            for entry in index.logs[event.chat]
        )
        top = len(index.logs[event.chat])
        if event.top not in {None, top}:
            yield Violation(
                "I14", f"{event.device} lists {event.chat} up to {event.top}, not {top}"
            )
        if event.unread != wanted:
            text = f"{event.device} counts {event.unread} unread of {event.chat} after {event.read}"
            yield Violation("I14", f"{text}, not {wanted}")
