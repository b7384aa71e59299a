"""Faults of marks, unread counts and pushes, each with the guarantee that it breaks."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.history.events import (
    History,
    Line,
    Marked,
    PushSent,
    ReadMark,
    Unread,
)
from tests.unit.support.history_edits import (
    change,
    replace,
)


def leave_unread(history: History) -> None:
    """A chat list reports a wrong unread count."""
    line = history.all_of(Line)[0]
    change(history, line, replace(line, unread=1))


def unread_of(history: History) -> Unread:
    """Return an unread count above 1."""
    return next(event for event in history.all_of(Unread) if event.unread > 1)


def count_too_few(history: History) -> None:
    """A device counts fewer unread messages than there are."""
    change(history, unread_of(history), replace(unread_of(history), unread=0))


def count_too_many(history: History) -> None:
    """A device counts more unread messages than there ever were."""
    change(history, unread_of(history), replace(unread_of(history), unread=10_000))


def move_mark_back(history: History) -> None:
    """A read mark is lower than it was."""
    mark = next(mark for mark in history.all_of(ReadMark) if not mark.is_final and mark.read > 0)
    at = history.events.index(mark)
    later = replace(mark, asked=mark.t + 0.1, t=mark.t + 0.2, read=mark.read - 1)
    history.events.insert(at + 1, later)


def mark_above_the_head(history: History) -> None:
    """A read mark is above the newest entry."""
    mark = history.all_of(ReadMark)[0]
    change(history, mark, replace(mark, read=10_000))


def store_another_mark(history: History) -> None:
    """DynamoDB has a lower mark than the user set last."""
    mark = next(mark for mark in history.all_of(ReadMark) if mark.is_final)
    change(history, mark, replace(mark, read=mark.read - 1))


def push_twice(history: History) -> None:
    """A push is sent twice."""
    push = history.all_of(PushSent)[0]
    change(history, push, push, replace(push, t=push.t + 0.1))


def push_nothing(history: History) -> None:
    """A user without a device gets no push of the newest message."""
    history.events.remove(history.all_of(PushSent)[0])


def push_to_non_member(history: History) -> None:
    """A user gets a push of a chat that the user is not in."""
    push = history.all_of(PushSent)[0]
    change(history, push, push, replace(push, user="carol"))


def push_own(history: History) -> None:
    """A user gets a push of the user's own message."""
    push = history.all_of(PushSent)[0]
    change(history, push, push, replace(push, user="alice"))


def mark_of(history: History) -> Marked:
    """Return the last mark that a device received."""
    return history.all_of(Marked)[-1]


def move_member_mark_back(history: History) -> None:
    """A device receives a lower mark of a member."""
    mark = mark_of(history)
    history.events.append(replace(mark, t=60.0, read=mark.read - 1))


def move_member_mark_beyond_the_head(history: History) -> None:
    """A device receives a mark beyond the newest entry."""
    history.events.append(replace(mark_of(history), t=60.0, received=10_000))


def send_mark_to_non_member(history: History) -> None:
    """A user who was never in a chat receives the mark of a member."""
    history.events.append(Marked(1.0, "carol", "carol-0", "duo", "alice", 1, 1))


def list_another_top(history: History) -> None:
    """A chat list reports another newest entry."""
    line = history.all_of(Unread)[0]
    change(history, line, replace(line, top=1))


def count_chat_of_others(history: History) -> None:
    """A user's chat list contains a chat of others."""
    history.events.append(Unread("carol", "carol-0", "duo", 0, 1))


STATE_FAULTS: list[tuple[str, Callable[[History], None]]] = [
    ("P10", leave_unread),
    ("I14", count_too_few),
    ("I14", count_too_many),
    ("I14", move_mark_back),
    ("I14", mark_above_the_head),
    ("I14", store_another_mark),
    ("I13", push_twice),
    ("I13", push_nothing),
    ("I13", push_to_non_member),
    ("I13", push_own),
    ("I14", move_member_mark_back),
    ("I14", move_member_mark_beyond_the_head),
    ("P7", send_mark_to_non_member),
    ("I14", list_another_top),
    ("P7", count_chat_of_others),
]
