"""Violations in a history that are excused by a data loss in Redis.

An entry is acked before DynamoDB has it. If Redis loses that entry, the epoch changes, each device
is reset, and the sending device sends the entry again with the same `ref` (P1). Therefore, the
following is excused in a history with `Lost` events, for events before the device was reset:

* an ack may contain a seq that the entry no longer has, unless the device was already notified that
  this seq is stored; the entry must still exist once;
* a device may have received an entry that no longer exists, and may receive its replacement;
* a change of a lost message may be refused when it is retried, because its target is gone;
* a message that a user deleted for themselves may be shown, and another one that now has its
  position may be hidden if the request does not name its message;
* a retried operation may be refused if its user has left the chat since, or if it changes a message
  that was deleted since; a retried deletion of such a message has no effect.

`remove_lost` returns the history without these events. The ack of a moved entry gets its new seq,
is marked as a duplicate, and does not count as the time when the entry was known, because the entry
got that seq later. All rules apply to the result.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict

import msgspec

from tests.support.history.events import (
    Delivered,
    Event,
    History,
    LogEntry,
    Lost,
    Marked,
    MembershipPeriods,
    Notified,
    Page,
    ReadMark,
    Requested,
    Responded,
    Restarted,
    Stored,
    Watermark,
    Withdrawn,
)

IN_FLIGHT_S = 1.0  # how long a frame is on its way through a slow link
_CHANGES = {"edit", "delete", "react"}


def remove_lost(history: History) -> History:
    """Return the history without the events excused by its losses."""
    losses = [event.t for event in history.events if isinstance(event, Lost)]
    if not losses:  # withdrawals without a loss are checked by rule E
        return History(history.chats, history.devices, _without_withdrawn(history.events))
    losses_filter = _LossFilter(history, losses)
    kept = [event for old in history.events if (event := losses_filter.apply(old)) is not None]
    return History(history.chats, history.devices, _without_withdrawn(kept))


class _LossFilter:
    """The times at which each device was reset after a loss, and the final history."""

    def __init__(self, history: History, losses: list[float]) -> None:
        self._at: dict[tuple[str, int], LogEntry] = {}
        self._of: dict[tuple[str, str, str], LogEntry] = {}
        self._asked: dict[tuple[str, str, str], Requested] = {}
        self._refused: dict[tuple[str, str, str], str] = {}  # the error code
        self._stays: dict[str, MembershipPeriods] = {}
        self._marks: dict[tuple[str, str], list[Watermark]] = defaultdict(list)
        resets: dict[str, list[float]] = defaultdict(list)
        for event in history.events:
            match event:
                case Stored():
                    self._stays[event.chat] = MembershipPeriods(
                        history.chats.get(event.chat, ()), event.entries
                    )
                    for entry in event.entries:
                        self._at[event.chat, entry.seq] = entry
                        self._of[event.chat, entry.sender, entry.ref] = entry
                case Requested():
                    self._asked[event.chat, event.user, event.ref] = event
                case Responded(code=code) if code:
                    self._refused[event.chat, event.user, event.ref] = code
                case Watermark():
                    self._marks[event.device, event.chat].append(event)
                case Restarted(is_new_epoch=True):
                    resets[event.device].append(event.t)
                case _:
                    pass
        # The time of a device's reset after each loss. Without a reset, nothing is excused.
        self._ends: dict[str, list[float]] = {}
        for device, times in resets.items():
            found = (_find_reset(times, loss) for loss in losses)
            self._ends[device] = sorted(end for end in found if end is not None)
        self._user_ends = {
            user: max((self._end_of(device) for device in devices), default=0.0)
            for user, devices in history.devices.items()
        }
        self._last = max(losses)
        self._lost_places = set(self._find_lost_places(history))
        self._sent_again = self._find_sent_again(history)

    def _end_of(self, device: str) -> float:
        ends = self._ends.get(device)
        return ends[-1] if ends else 0.0

    def _find_lost_places(self, history: History) -> list[tuple[str, int]]:
        places = []
        for event in history.events:
            match event:
                case Delivered() if self._is_gone(event.chat, event.entry):
                    places.append((event.chat, event.entry.seq))
                case Responded(code="") if event.seq and self._is_moved(event):
                    places.append((event.chat, event.seq))
                case _:
                    pass
        return places

    def _find_sent_again(self, history: History) -> dict[tuple[str, str, str], float]:
        """Return the time of the lost ack for each ref of which a later attempt is recorded."""
        lost_at = {_key_of(ack): ack.t for ack in history.acks() if ack.seq and self._is_moved(ack)}
        requests = history.all_of(Requested)
        return {
            _key_of(each): lost_at[_key_of(each)]
            for each in requests
            if each.t > lost_at.get(_key_of(each), each.t)
        }

    def _is_gone(self, chat: str, entry: LogEntry) -> bool:
        final = self._at.get((chat, entry.seq))
        return final is None or final.place != entry.place

    def _is_moved(self, answer: Responded) -> bool:
        asked = self._asked.get((answer.chat, answer.user, answer.ref))
        if asked is not None and asked.kind == "hide":
            return False  # it has no seq
        final = self._of.get((answer.chat, answer.user, answer.ref))
        return final is None or final.mid != answer.mid

    def apply(self, event: Event) -> Event | None:
        """Return the event, corrected if necessary, or None if a loss excuses it."""
        match event:
            case Responded(code="") if self._has_hidden_lost(event):
                return None
            case Responded(code="") if event.seq and self._is_moved(event):
                return self._apply_to_answer(event)
            case Delivered() if event.t < self._end_of(event.device):
                return None if self._is_gone(event.chat, event.entry) else event
            case Notified() | Marked() if event.t < self._end_of(event.device):
                return None
            case Requested() if event.t < self._sent_again.get(_key_of(event), 0.0):
                return None  # a later attempt made the entry that exists
            case Page() if event.t < self._user_ends.get(event.user, 0.0):
                return None
            case ReadMark(is_final=False) if event.asked < self._user_ends.get(event.user, 0.0):
                return None
            case _:
                return event

    def _has_hidden_lost(self, answer: Responded) -> bool:
        """Return whether a user deleted a lost message for themselves, before the reset."""
        asked = self._asked.get((answer.chat, answer.user, answer.ref))
        if asked is None or asked.kind != "hide" or asked.t >= self._user_ends[answer.user]:
            return False
        return (asked.chat, asked.target) in self._lost_places

    def _apply_to_answer(self, answer: Responded) -> Responded | None:
        end = next((t for t in self._ends.get(answer.device, ()) if t > answer.t), None)
        if end is None or self._is_known_stored(answer, end):
            return answer
        key = (answer.chat, answer.user, answer.ref)
        final = self._of.get(key)
        if final is not None:
            return msgspec.structs.replace(
                answer, seq=final.seq, ts=final.ts, mid=final.mid, dup=True, t=math.inf
            )
        code, asked = self._refused.get(key), self._asked.get(key)
        if code == "not_found" and self._was_removed(answer.user, answer.chat):
            return None
        is_change = asked is not None and asked.kind in _CHANGES
        target = self._at.get((answer.chat, asked.target)) if asked is not None else None
        is_deleted = is_change and target is not None and target.deleted
        if is_deleted and (code == "conflict" or (asked is not None and asked.kind == "delete")):
            return None
        if is_change and asked is not None and (asked.chat, asked.target) in self._lost_places:
            return None
        return answer

    def _was_removed(self, user: str, chat: str) -> bool:
        stays = self._stays.get(chat)
        return stays is not None and any(end is not None for _, end in stays.of.get(user, ()))

    def _is_known_stored(self, answer: Responded, end: float) -> bool:
        return any(
            answer.t <= mark.t < end and mark.upto >= answer.seq
            for mark in self._marks[answer.device, answer.chat]
        )


def _find_reset(times: list[float], loss: float) -> float | None:
    """Return when a device was reset because of a loss; `times` are those of all its resets.

    A reset that arrives soon after a loss may have been sent before it, because of an earlier one.
    """
    later = times[bisect_right(times, loss) :]
    if len(later) > 1 and later[0] < loss + IN_FLIGHT_S:
        return later[1]
    return later[0] if later else None


def _key_of(event: Requested | Responded) -> tuple[str, str, str]:
    return (event.chat, event.user, event.ref)


def _without_withdrawn(events: list[Event]) -> list[Event]:
    """Remove entries that devices received and then withdrew, because they are delivered again."""
    withdrawn: dict[tuple[str, str], int] = {}
    kept: list[Event] = []
    for event in reversed(events):
        match event:
            case Withdrawn():
                key = (event.device, event.chat)
                withdrawn[key] = min(event.after, withdrawn.get(key, event.after))
            case Delivered() if event.entry.seq > withdrawn.get((event.device, event.chat), 2**53):
                continue
            case _:
                kept.append(event)
                continue
        kept.append(event)
    return kept[::-1]
