"""Faults injected into a valid history, each with the guarantee that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tests.support.history.events import (
    Delivered,
    Event,
    Final,
    History,
    Line,
    LogEntry,
    Lost,
    Marked,
    Notified,
    Page,
    Requested,
    Responded,
    Skipped,
    Stored,
    Unstored,
    Watermark,
    Withdrawn,
)
from tests.unit.support.history_edits import (
    change,
    change_entries,
    delivery_in,
    periods_of,
    replace,
)
from tests.unit.support.injected_state_faults import STATE_FAULTS


def lose_at_device(history: History) -> None:
    """A device never receives an entry."""
    history.events.remove(delivery_in(history))


def lose_in_dynamodb(history: History) -> None:
    """DynamoDB lacks the newest entry."""
    change_entries(history, Stored, lambda entries: entries[:-1])


def lose_in_history(history: History) -> None:
    """A member's history lacks an entry."""
    change_entries(history, Final, lambda entries: entries[:3] + entries[4:])


def lose_in_page(history: History) -> None:
    """A page has a gap."""
    page = next(page for page in history.all_of(Page) if len(page.entries) > 3)
    change(history, page, replace(page, entries=page.entries[:1] + page.entries[2:]))


def skip_required_entry(history: History) -> None:
    """A device skips an entry that it must receive."""
    delivery = delivery_in(history)
    seq = delivery.entry.seq
    change(
        history,
        delivery,
        Skipped(delivery.t, delivery.user, delivery.device, delivery.chat, seq - 1, seq),
    )


def lose_membership_change(history: History) -> None:
    """A leave was answered, but the log does not contain it."""
    t = history.all_of(Requested)[-1].t
    asked = Requested(t, "alice", "duo", "gone", "leave")
    history.events += [asked, Responded(t + 0.1, "alice", "duo", "gone")]


def ack_retry_at_another_seq(history: History) -> None:
    """A retry of a message is acked as if it were another message."""
    sends = {(e.chat, e.user, e.ref) for e in history.all_of(Requested) if e.kind == "send"}
    ack = next(e for e in history.acks() if e.seq and (e.chat, e.user, e.ref) in sends)
    again = replace(ack, seq=ack.seq + 1, mid="other", ts=ack.ts + 5, dup=True)
    change(history, ack, ack, again)


def deliver_body_of_another_attempt(history: History) -> None:
    """A device shows the body of an attempt that was refused."""
    asked = {(e.chat, e.user, e.ref): e for e in history.all_of(Requested) if e.kind == "send"}
    edited = {(e.chat, e.target) for e in history.all_of(Requested) if e.kind == "edit"}
    kept = {(s.chat, e.seq) for s in history.all_of(Stored) for e in s.entries if not e.deleted}
    delivery = next(
        e
        for e in history.all_of(Delivered)
        if e.entry.kind == "text"
        and (e.chat, e.user, e.entry.ref) not in asked
        and (e.chat, e.entry.sender, e.entry.ref) in asked
        and (e.chat, e.entry.seq) not in edited
        and (e.chat, e.entry.seq) in kept
    )
    first = asked[delivery.chat, delivery.entry.sender, delivery.entry.ref]
    change(history, first, first, replace(first, body="refused"))
    change(history, delivery, replace(delivery, entry=replace(delivery.entry, body="refused")))


def repeat_at_device(history: History) -> None:
    """A device receives an entry twice."""
    delivery = delivery_in(history)
    change(history, delivery, delivery, delivery)


def repeat_in_dynamodb(history: History) -> None:
    """A message is in DynamoDB at two seqs."""
    change_entries(
        history,
        Stored,
        lambda es: (*es, replace(es[-1], seq=es[-1].seq + 1, ts=es[-1].ts + 1, mid="twin")),
    )


def swap_at_device(history: History) -> None:
    """A device receives two entries in the wrong order."""
    first = delivery_in(history)
    same = (
        s for s in history.all_of(Delivered) if (s.device, s.chat) == (first.device, first.chat)
    )
    second = next(event for event in same if event.entry.seq > first.entry.seq)
    a, b = (history.events.index(event) for event in (first, second))
    history.events[a], history.events[b] = history.events[b], history.events[a]


def swap_in_dynamodb(history: History) -> None:
    """Two entries have swapped seqs."""

    def swap(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
        a, b = entries[1:3]
        swapped = (replace(b, seq=a.seq, ts=a.ts), replace(a, seq=b.seq, ts=b.ts))
        return (entries[0], *swapped, *entries[3:])

    change_entries(history, Stored, swap)


def rewrite_at_device(history: History) -> None:
    """A device receives another entry at a position."""
    delivery = delivery_in(history)
    change(history, delivery, replace(delivery, entry=replace(delivery.entry, mid="another")))


def deliver_to_non_member(history: History) -> None:
    """A user who was never in a chat receives one of its messages."""
    delivery = next(event for event in history.all_of(Delivered) if event.chat == "duo")
    history.events.append(replace(delivery, user="dave", device="dave-0"))


def deliver_to_former_member(history: History) -> None:
    """A user who left receives a later message."""
    periods = periods_of(history)
    user, end = next(
        (user, period[1]) for user, found in periods.of.items() for period in found if period[1]
    )
    log = next(event for event in history.all_of(Stored) if event.chat == "group").entries
    entry = next(e for e in log[end:] if not periods.covers(user, e.seq))
    history.events.append(Delivered(1.0, user, f"{user}-0", "group", entry))


def show_page_to_non_member(history: History) -> None:
    """A user who was never in a chat reads a page of it."""
    entries = next(log for log in history.all_of(Stored) if log.chat == "duo").entries
    history.events.append(Page(1.0, "carol", "duo", entries[:2]))


def signal_to_non_member(history: History) -> None:
    """A user who was never in a chat receives a read mark of it."""
    history.events.append(Notified(1.0, "carol", "carol-0", "duo", "a mark"))


def list_chat_of_others(history: History) -> None:
    """A user's chat list contains a chat of others."""
    history.events.append(Line("carol", "carol-0", "duo", 3, 0))


def edit_message_of_another_user(history: History) -> None:
    """An edit of another user's message was accepted."""
    done = {answer.ref for answer in history.all_of(Responded) if not answer.code}
    edits = (a for a in history.all_of(Requested) if a.kind == "edit" and a.ref in done)
    edit = next(a for a in edits if a.chat == "duo")
    other = "alice" if edit.user == "bob" else "bob"
    change(history, edit, replace(edit, user=other))
    for event in list(history.events):
        match event:
            case Delivered(entry=entry) if entry.ref == edit.ref:
                change(history, event, replace(event, entry=replace(entry, sender=other)))
            case Stored() | Final():
                entries = tuple(
                    replace(e, sender=other) if e.ref == edit.ref else e for e in event.entries
                )
                change(history, event, replace(event, entries=entries))
            case Responded(ref=ref) if ref == edit.ref:
                change(history, event, replace(event, user=other))


def undo_edit(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """Give a message a body from before its edits."""
    at = next(i for i, e in enumerate(entries) if e.kind == "text" and not e.deleted)
    return (*entries[:at], replace(entries[at], body="unedited"), *entries[at + 1 :])


def remove_reaction(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """Remove the reactions of a message."""
    at = next(i for i, e in enumerate(entries) if e.reactions)
    return (*entries[:at], replace(entries[at], reactions={}), *entries[at + 1 :])


def undo_deletion(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """Show a deleted message."""
    at = next(i for i, e in enumerate(entries) if e.deleted)
    return (*entries[:at], replace(entries[at], body="hi", deleted=False), *entries[at + 1 :])


def accept_refused(history: History) -> None:
    """The log contains a message that was finally refused."""
    answer = next(a for a in history.all_of(Responded) if a.seq and not a.code and a.chat == "duo")
    change(history, answer, replace(answer, code="forbidden"))


def remove_request(history: History) -> None:
    """The log contains a message that nobody sent."""
    ref = next(ack.ref for ack in history.acks() if ack.seq)
    for attempt in [asked for asked in history.all_of(Requested) if asked.ref == ref]:
        history.events.remove(attempt)


def report_stored_too_far(history: History) -> None:
    """A device receives `stored` for entries that do not exist."""
    mark = history.all_of(Watermark)[0]
    change(history, mark, replace(mark, upto=mark.upto + 1))


def never_report_stored(history: History) -> None:
    """A device never gets `stored` for its entry."""
    history.events.append(Unstored("bob", "bob-0", "duo", ("r1",)))


def withdraw_without_a_loss(history: History) -> None:
    """A device withdraws an entry although Redis lost nothing."""
    delivery = next(delivery for delivery in history.all_of(Delivered) if delivery.chat == "duo")
    names = (delivery.user, delivery.device, delivery.chat)
    history.events.append(
        Withdrawn(delivery.t, *names, (delivery.entry.seq,), delivery.entry.seq - 1)
    )


def never_reset(history: History) -> None:
    """Redis loses data, and no device is reset."""
    history.events.append(Lost(10.0, "flush"))


def read_stale_page(history: History) -> None:
    """A page lacks the newest entries known at its request."""
    page = next(page for page in history.all_of(Page) if page.asked and len(page.entries) > 3)
    newest = {"before": None, "after": None, "has_more": True}
    change(history, page, replace(page, asked=90.0, entries=page.entries[:1], **newest))


def end_page_too_early(history: History) -> None:
    """A page reports no further entries although there are some."""
    page = next(
        page
        for page in reversed(history.all_of(Page))
        if page.asked and page.entries and page.entries[0].seq > 1
    )
    before = page.entries[-1].seq + 1
    change(history, page, replace(page, before=before, after=None, has_more=False))


def rewrite_page(history: History) -> None:
    """A page has another entry at a position."""
    page = next(page for page in history.all_of(Page) if page.entries)
    first = replace(page.entries[0], ts=page.entries[0].ts + 1)
    change(history, page, replace(page, entries=(first, *page.entries[1:])))


def deliver_another_body(history: History) -> None:
    """A device receives a message with a body that nobody sent."""
    delivery = next(each for each in history.all_of(Delivered) if each.entry.kind == "text")
    entry = replace(delivery.entry, body="something else")
    change(history, delivery, replace(delivery, entry=entry))


def skip_inbox_position(history: History) -> None:
    """The inbox of a device skips an event that is not an entry."""
    history.events.remove(next(each for each in history.all_of(Notified) if each.epoch))


def lose_last_event(history: History) -> None:
    """A device never receives the last entry, so its inbox has no gap."""
    last = [each for each in history.all_of(Delivered) if each.device == "bob-1"][-1]
    history.events = [
        event for event in history.events if event is last or not is_after(event, last)
    ]
    history.events.remove(last)


def is_after(event: Event, last: Delivered) -> bool:
    """Return whether an event is a later event of the same device."""
    is_of_device = isinstance(event, Notified | Marked) and event.device == last.device
    return is_of_device and event.t > last.t


def reorder_inbox(history: History) -> None:
    """Two events of a chat are exchanged in the inbox of a device."""
    entries = [d for d in history.all_of(Delivered) if (d.device, d.chat) == ("bob-1", "duo")]
    a, b = entries[2:4]
    change(history, a, replace(a, entry=b.entry))
    change(history, b, replace(b, entry=a.entry))


def sends_of_bob(history: History) -> list[Responded]:
    """Return the acks of two sends of one user in one chat on one connection."""
    texts = {asked.ref for asked in history.all_of(Requested) if asked.kind == "send"}
    acks = [
        ack
        for ack in history.acks()
        if ack.ref in texts and not ack.dup and (ack.user, ack.chat) == ("bob", "duo")
    ]
    return next([a, b] for a, b in pairwise(acks) if a.conn == b.conn)


def reorder_pipelined_sends(history: History) -> None:
    """The first of two pipelined sends on one connection gets the higher seq."""
    first, second = sends_of_bob(history)
    requests = {asked.ref: asked for asked in history.all_of(Requested)}
    early, late = requests[first.ref], requests[second.ref]
    history.events.remove(late)
    change(history, early, replace(late, t=early.t - 0.0001), early)


def ack_before_an_earlier_one_is_sent(history: History) -> None:
    """A message is sent after one with a higher seq was acked."""
    first, second = sends_of_bob(history)
    for asked in [each for each in history.all_of(Requested) if each.ref == first.ref]:
        change(history, asked, replace(asked, t=second.t + 0.0001, conn=99))


def refuse_each_attempt(history: History) -> None:
    """A message exists although each of its two attempts was refused."""
    dup = next(ack for ack in history.acks() if ack.dup)
    change(history, dup, *(replace(dup, code="forbidden", dup=False) for _ in range(2)))


def skip_seq_in_dynamodb(history: History) -> None:
    """A seq has no entry."""
    change_entries(history, Stored, lambda es: (*es[:-1], replace(es[-1], seq=es[-1].seq + 1)))


def move_timestamp_back(history: History) -> None:
    """An entry has an earlier timestamp than the entry before it."""
    change_entries(history, Stored, lambda es: (*es[:-1], replace(es[-1], ts=es[0].ts)))


def repeat_in_history(history: History) -> None:
    """A member's history contains an entry twice."""
    change_entries(history, Final, lambda entries: entries[:3] + entries[2:])


def send_as_non_member(history: History) -> None:
    """The log has a message of a user who is not a member."""
    history.chats["duo"] = ["alice"]


FAULTS: list[tuple[str, Callable[[History], None]]] = [
    ("P4", lose_at_device),
    ("P1", lose_in_dynamodb),
    ("P6", lose_in_history),
    ("P6", lose_in_page),
    ("P4", skip_required_entry),
    ("P1", lose_membership_change),
    ("P1", ack_retry_at_another_seq),
    ("P2", deliver_body_of_another_attempt),
    ("P4", repeat_at_device),
    ("P2", repeat_in_dynamodb),
    ("P4", swap_at_device),
    ("P1", swap_in_dynamodb),
    ("P3", rewrite_at_device),
    ("P7", deliver_to_non_member),
    ("P7", deliver_to_former_member),
    ("P7", show_page_to_non_member),
    ("P7", signal_to_non_member),
    ("P7", list_chat_of_others),
    ("P7", edit_message_of_another_user),
    ("P2", accept_refused),
    ("P2", remove_request),
    ("S", report_stored_too_far),
    ("S", never_report_stored),
    ("E", withdraw_without_a_loss),
    ("E", never_reset),
    ("P6", read_stale_page),
    ("P6", end_page_too_early),
    ("P3", rewrite_page),
    ("P2", deliver_another_body),
    ("P4", skip_inbox_position),
    ("P4", lose_last_event),
    ("P4", reorder_inbox),
    ("I7", reorder_pipelined_sends),
    ("I8", ack_before_an_earlier_one_is_sent),
    ("P2", refuse_each_attempt),
    ("P3", skip_seq_in_dynamodb),
    ("P3", move_timestamp_back),
    ("P6", repeat_in_history),
    ("P7", send_as_non_member),
    *STATE_FAULTS,
]
