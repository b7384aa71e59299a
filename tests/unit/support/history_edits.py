"""Edits of a valid history, from which faults are made."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.support.history.events import (
    Delivered,
    Event,
    Final,
    History,
    Kept,
    LogEntry,
    MembershipPeriods,
    Stored,
)

replace = msgspec.structs.replace


def change(history: History, old: Event, *new: Event) -> None:
    """Replace `old` with `new`."""
    at = next(i for i, event in enumerate(history.events) if event is old)
    history.events[at : at + 1] = new


def change_entries(
    history: History,
    kind: type[Stored] | type[Final] | type[Kept],
    transform: Callable[[tuple[LogEntry, ...]], tuple[LogEntry, ...]],
) -> None:
    """Change the entries of the first event of a kind in the group."""
    event = next(event for event in history.all_of(kind) if event.chat == "group")
    change(history, event, replace(event, entries=transform(event.entries)))


def delivery_in(history: History, at: int = 40) -> Delivered:
    """Return an entry of the group that an SDK device received in the middle of the history."""
    deliveries = history.all_of(Delivered)
    return [each for each in deliveries if each.chat == "group" and not each.epoch][at]


def periods_of(history: History) -> MembershipPeriods:
    """Return the membership periods of the group."""
    stored = next(event for event in history.all_of(Stored) if event.chat == "group")
    return MembershipPeriods(history.chats["group"], stored.entries)
