"""Faults injected into a valid story, each with the guarantee that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from tests.support.story import (
    Answered,
    Asked,
    Delivered,
    Final,
    Kept,
    Line,
    Lost,
    MembershipPeriods,
    Notified,
    Page,
    PushSent,
    ReadMark,
    Scene,
    Shown,
    Skipped,
    Stored,
    Story,
    Unread,
    Unstored,
    Watermark,
    Withdrawn,
)

replace = msgspec.structs.replace
S = TypeVar("S")


def all_of(story: Story, kind: type[S]) -> list[S]:
    """Return the scenes of one kind."""
    return [scene for scene in story.scenes if isinstance(scene, kind)]


def change(story: Story, old: Scene, *new: Scene) -> None:
    """Replace `old` with `new`."""
    at = next(i for i, scene in enumerate(story.scenes) if scene is old)
    story.scenes[at : at + 1] = new


def change_entries(
    story: Story,
    kind: type[Stored] | type[Final] | type[Kept],
    transform: Callable[[tuple[Shown, ...]], tuple[Shown, ...]],
) -> None:
    """Change the entries of the first scene of a kind in the group."""
    scene = next(scene for scene in all_of(story, kind) if scene.chat == "group")
    change(story, scene, replace(scene, entries=transform(scene.entries)))


def delivery_in(story: Story, at: int = 40) -> Delivered:
    """Return an event of the group that a device received in the middle of the story."""
    return [scene for scene in all_of(story, Delivered) if scene.chat == "group"][at]


def periods_of(story: Story) -> MembershipPeriods:
    """Return the membership periods of the group."""
    stored = next(scene for scene in all_of(story, Stored) if scene.chat == "group")
    return MembershipPeriods(story.chats["group"], stored.entries)


def lose_at_device(story: Story) -> None:
    """A device never receives an entry."""
    story.scenes.remove(delivery_in(story))


def lose_in_dynamodb(story: Story) -> None:
    """DynamoDB lacks the newest entry."""
    change_entries(story, Stored, lambda entries: entries[:-1])


def lose_in_history(story: Story) -> None:
    """A member's history lacks an entry."""
    change_entries(story, Final, lambda entries: entries[:3] + entries[4:])


def lose_in_page(story: Story) -> None:
    """A page has a gap."""
    page = next(page for page in all_of(story, Page) if len(page.seqs) > 3)
    change(story, page, replace(page, seqs=page.seqs[:1] + page.seqs[2:]))


def skip_required_entry(story: Story) -> None:
    """A device skips an entry that it must receive."""
    delivery = delivery_in(story)
    seq = delivery.entry.seq
    change(
        story,
        delivery,
        Skipped(delivery.t, delivery.user, delivery.device, delivery.chat, seq - 1, seq),
    )


def lose_membership_change(story: Story) -> None:
    """A leave was answered, but the log does not contain it."""
    t = all_of(story, Asked)[-1].t
    asked = Asked(t, "alice", "duo", "gone", "leave")
    story.scenes += [asked, Answered(t + 0.1, "alice", "duo", "gone")]


def repeat_at_device(story: Story) -> None:
    """A device receives an entry twice."""
    delivery = delivery_in(story)
    change(story, delivery, delivery, delivery)


def repeat_in_dynamodb(story: Story) -> None:
    """A message is in DynamoDB at two seqs."""
    change_entries(
        story,
        Stored,
        lambda es: (*es, replace(es[-1], seq=es[-1].seq + 1, ts=es[-1].ts + 1, mid="twin")),
    )


def swap_at_device(story: Story) -> None:
    """A device receives two entries in the wrong order."""
    first = delivery_in(story)
    same = (s for s in all_of(story, Delivered) if (s.device, s.chat) == (first.device, first.chat))
    second = next(scene for scene in same if scene.entry.seq > first.entry.seq)
    a, b = (story.scenes.index(scene) for scene in (first, second))
    story.scenes[a], story.scenes[b] = story.scenes[b], story.scenes[a]


def swap_in_dynamodb(story: Story) -> None:
    """Two entries have swapped seqs."""

    def swap(entries: tuple[Shown, ...]) -> tuple[Shown, ...]:
        a, b = entries[1:3]
        swapped = (replace(b, seq=a.seq, ts=a.ts), replace(a, seq=b.seq, ts=b.ts))
        return (entries[0], *swapped, *entries[3:])

    change_entries(story, Stored, swap)


def rewrite_at_device(story: Story) -> None:
    """A device receives another entry at a position."""
    delivery = delivery_in(story)
    change(story, delivery, replace(delivery, entry=replace(delivery.entry, mid="another")))


def deliver_to_non_member(story: Story) -> None:
    """A user who was never in a chat receives one of its messages."""
    delivery = next(scene for scene in all_of(story, Delivered) if scene.chat == "duo")
    story.scenes.append(replace(delivery, user="dave", device="dave-0"))


def deliver_to_former_member(story: Story) -> None:
    """A user who left receives a later message."""
    periods = periods_of(story)
    user, end = next(
        (user, period[1]) for user, found in periods.of.items() for period in found if period[1]
    )
    log = next(scene for scene in all_of(story, Stored) if scene.chat == "group").entries
    entry = next(e for e in log[end:] if not periods.covers(user, e.seq))
    story.scenes.append(Delivered(1.0, user, f"{user}-0", "group", entry))


def show_page_to_non_member(story: Story) -> None:
    """A user who was never in a chat reads a page of it."""
    story.scenes.append(Page(1.0, "carol", "duo", (1, 2)))


def signal_to_non_member(story: Story) -> None:
    """A user who was never in a chat receives a read mark of it."""
    story.scenes.append(Notified(1.0, "carol", "carol-0", "duo", "a mark"))


def list_chat_of_others(story: Story) -> None:
    """A user's chat list contains a chat of others."""
    story.scenes.append(Line("carol", "carol-0", "duo", 3, 0))


def edit_message_of_another_user(story: Story) -> None:
    """An edit of another user's message was accepted."""
    done = {answer.ref for answer in all_of(story, Answered) if not answer.code}
    edits = (a for a in all_of(story, Asked) if a.kind == "edit" and a.ref in done)
    edit = next(a for a in edits if a.chat == "duo")
    other = "alice" if edit.user == "bob" else "bob"
    change(story, edit, replace(edit, user=other))
    for scene in list(story.scenes):
        match scene:
            case Delivered(entry=entry) if entry.ref == edit.ref:
                change(story, scene, replace(scene, entry=replace(entry, sender=other)))
            case Stored() | Final():
                entries = tuple(
                    replace(e, sender=other) if e.ref == edit.ref else e for e in scene.entries
                )
                change(story, scene, replace(scene, entries=entries))
            case Answered(ref=ref) if ref == edit.ref:
                change(story, scene, replace(scene, user=other))


def undo_edit(entries: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """Give a message a body from before its edits."""
    at = next(i for i, e in enumerate(entries) if e.kind == "text" and not e.deleted)
    return (*entries[:at], replace(entries[at], body="unedited"), *entries[at + 1 :])


def remove_reaction(entries: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """Remove the reactions of a message."""
    at = next(i for i, e in enumerate(entries) if e.reactions)
    return (*entries[:at], replace(entries[at], reactions={}), *entries[at + 1 :])


def undo_deletion(entries: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """Show a deleted message."""
    at = next(i for i, e in enumerate(entries) if e.deleted)
    return (*entries[:at], replace(entries[at], body="hi", deleted=False), *entries[at + 1 :])


def leave_unread(story: Story) -> None:
    """A chat list reports a wrong unread count."""
    line = all_of(story, Line)[0]
    change(story, line, replace(line, unread=1))


def accept_refused(story: Story) -> None:
    """The log contains a message that was finally refused."""
    answer = next(a for a in all_of(story, Answered) if a.seq and not a.code and a.chat == "duo")
    change(story, answer, replace(answer, code="forbidden"))


def remove_request(story: Story) -> None:
    """The log contains a message that nobody sent."""
    asked = next(a for a in all_of(story, Asked) if a.kind == "send")
    story.scenes.remove(asked)


def unread_of(story: Story) -> Unread:
    """Return an unread count above 1."""
    return next(scene for scene in all_of(story, Unread) if scene.unread > 1)


def count_too_few(story: Story) -> None:
    """A device counts fewer unread messages than there are."""
    change(story, unread_of(story), replace(unread_of(story), unread=0))


def count_too_many(story: Story) -> None:
    """A device counts more unread messages than there ever were."""
    change(story, unread_of(story), replace(unread_of(story), unread=10_000))


def move_mark_back(story: Story) -> None:
    """A read mark is lower than it was."""
    mark = next(mark for mark in all_of(story, ReadMark) if not mark.is_final and mark.read > 0)
    at = story.scenes.index(mark)
    later = replace(mark, asked=mark.t + 0.1, t=mark.t + 0.2, read=mark.read - 1)
    story.scenes.insert(at + 1, later)


def mark_above_the_head(story: Story) -> None:
    """A read mark is above the newest entry."""
    mark = all_of(story, ReadMark)[0]
    change(story, mark, replace(mark, read=10_000))


def store_another_mark(story: Story) -> None:
    """DynamoDB has a lower mark than the user set last."""
    mark = next(mark for mark in all_of(story, ReadMark) if mark.is_final)
    change(story, mark, replace(mark, read=mark.read - 1))


def report_stored_too_far(story: Story) -> None:
    """A device receives `stored` for entries that do not exist."""
    mark = all_of(story, Watermark)[0]
    change(story, mark, replace(mark, upto=mark.upto + 1))


def never_report_stored(story: Story) -> None:
    """A device never gets `stored` for its entry."""
    story.scenes.append(Unstored("bob", "bob-0", "duo", ("r1",)))


def push_twice(story: Story) -> None:
    """A push is sent twice."""
    push = all_of(story, PushSent)[0]
    change(story, push, push, replace(push, t=push.t + 0.1))


def push_nothing(story: Story) -> None:
    """A user without a device gets no push of the newest message."""
    story.scenes.remove(all_of(story, PushSent)[0])


def push_to_non_member(story: Story) -> None:
    """A user gets a push of a chat that the user is not in."""
    push = all_of(story, PushSent)[0]
    change(story, push, push, replace(push, user="carol"))


def push_own(story: Story) -> None:
    """A user gets a push of the user's own message."""
    push = all_of(story, PushSent)[0]
    change(story, push, push, replace(push, user="alice"))


def withdraw_without_a_loss(story: Story) -> None:
    """A device withdraws an entry although Redis lost nothing."""
    delivery = next(delivery for delivery in all_of(story, Delivered) if delivery.chat == "duo")
    names = (delivery.user, delivery.device, delivery.chat)
    story.scenes.append(
        Withdrawn(delivery.t, *names, (delivery.entry.seq,), delivery.entry.seq - 1)
    )


def never_reset(story: Story) -> None:
    """Redis loses data, and no device is reset."""
    story.scenes.append(Lost(10.0, "flush"))


FAULTS: list[tuple[str, Callable[[Story], None]]] = [
    ("P4", lose_at_device),
    ("P1", lose_in_dynamodb),
    ("P6", lose_in_history),
    ("P6", lose_in_page),
    ("P4", skip_required_entry),
    ("P1", lose_membership_change),
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
    ("P10", leave_unread),
    ("P2", accept_refused),
    ("P2", remove_request),
    ("I14", count_too_few),
    ("I14", count_too_many),
    ("I14", move_mark_back),
    ("I14", mark_above_the_head),
    ("I14", store_another_mark),
    ("S", report_stored_too_far),
    ("S", never_report_stored),
    ("I13", push_twice),
    ("I13", push_nothing),
    ("I13", push_to_non_member),
    ("I13", push_own),
    ("E", withdraw_without_a_loss),
    ("E", never_reset),
]
