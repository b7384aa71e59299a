"""Violations in a story that are excused by a data loss in Redis.

An entry is acked before DynamoDB has it. If Redis loses that entry, the epoch changes, each device
is reset, and the sending device sends the entry again with the same `ref` (P1). Therefore, the
following is excused in a story with `Lost` scenes, for events before the device was reset:

* an ack may contain a seq that the entry no longer has, unless the device was already notified that
  this seq is stored; the entry must still exist once;
* a device may have received an entry that no longer exists, and may receive its replacement;
* a change of a lost message may be refused when it is retried, because its target is gone;
* a retried operation may be refused if its user has left the chat since, or if it changes a message
  that was deleted since.

`remove_lost` returns the story without these scenes and with the new seq of each moved entry in its
ack. All rules apply to the result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import msgspec

from tests.support.story import (
    Answered,
    Asked,
    Delivered,
    Lost,
    MembershipPeriods,
    Notified,
    Page,
    ReadMark,
    Restarted,
    Scene,
    Shown,
    Stored,
    Story,
    Watermark,
    Withdrawn,
)

_CHANGES = {"edit", "delete", "react"}


def remove_lost(story: Story) -> Story:
    """Return the story without the scenes excused by its losses."""
    losses = [scene.t for scene in story.scenes if isinstance(scene, Lost)]
    if not losses:  # withdrawals without a loss are checked by rule E
        return Story(story.chats, story.devices, _without_withdrawn(story.scenes))
    losses_filter = _LossFilter(story, losses)
    kept = [scene for old in story.scenes if (scene := losses_filter.apply(old)) is not None]
    return Story(story.chats, story.devices, _without_withdrawn(kept))


class _LossFilter:
    """The times at which each device was reset after a loss, and the final history."""

    def __init__(self, story: Story, losses: list[float]) -> None:
        self._at: dict[tuple[str, int], Shown] = {}
        self._of: dict[tuple[str, str, str], Shown] = {}
        self._asked: dict[tuple[str, str, str], Asked] = {}
        self._refused: dict[tuple[str, str, str], str] = {}  # the error code
        self._stays: dict[str, MembershipPeriods] = {}
        self._marks: dict[tuple[str, str], list[Watermark]] = defaultdict(list)
        resets: dict[str, list[float]] = defaultdict(list)
        for scene in story.scenes:
            match scene:
                case Stored():
                    self._stays[scene.chat] = MembershipPeriods(
                        story.chats.get(scene.chat, ()), scene.entries
                    )
                    for entry in scene.entries:
                        self._at[scene.chat, entry.seq] = entry
                        self._of[scene.chat, entry.sender, entry.ref] = entry
                case Asked():
                    self._asked[scene.chat, scene.user, scene.ref] = scene
                case Answered(code=code) if code:
                    self._refused[scene.chat, scene.user, scene.ref] = code
                case Watermark():
                    self._marks[scene.device, scene.chat].append(scene)
                case Restarted(is_new_epoch=True):
                    resets[scene.device].append(scene.t)
                case _:
                    pass
        # The time of a device's reset after each loss. Without a reset, nothing is excused.
        self._ends: dict[str, list[float]] = {}
        for device, times in resets.items():
            found = (bisect_right(times, loss) for loss in losses)
            self._ends[device] = sorted(times[at] for at in found if at < len(times))
        self._user_ends = {
            user: max((self._end_of(device) for device in devices), default=0.0)
            for user, devices in story.devices.items()
        }
        self._last = max(losses)
        self._lost_places = set(self._find_lost_places(story))

    def _end_of(self, device: str) -> float:
        ends = self._ends.get(device)
        return ends[-1] if ends else 0.0

    def _find_lost_places(self, story: Story) -> list[tuple[str, int]]:
        places = []
        for scene in story.scenes:
            match scene:
                case Delivered() if self._is_gone(scene.chat, scene.entry):
                    places.append((scene.chat, scene.entry.seq))
                case Answered(code="") if scene.seq and self._is_moved(scene):
                    places.append((scene.chat, scene.seq))
                case _:
                    pass
        return places

    def _is_gone(self, chat: str, entry: Shown) -> bool:
        final = self._at.get((chat, entry.seq))
        return final is None or final.place != entry.place

    def _is_moved(self, answer: Answered) -> bool:
        asked = self._asked.get((answer.chat, answer.user, answer.ref))
        if asked is not None and asked.kind == "hide":
            return False  # it has no seq
        final = self._of.get((answer.chat, answer.user, answer.ref))
        return final is None or final.mid != answer.mid

    def apply(self, scene: Scene) -> Scene | None:
        """Return the scene, corrected if necessary, or None if a loss excuses it."""
        match scene:
            case Answered(code="") if scene.seq and self._is_moved(scene):
                return self._apply_to_answer(scene)
            case Delivered() if scene.t < self._end_of(scene.device):
                return None if self._is_gone(scene.chat, scene.entry) else scene
            case Notified() if scene.t < self._end_of(scene.device):
                return None
            case Page() if scene.t < self._user_ends.get(scene.user, 0.0):
                return None
            case ReadMark(is_final=False) if scene.asked < self._user_ends.get(scene.user, 0.0):
                return None
            case _:
                return scene

    def _apply_to_answer(self, answer: Answered) -> Answered | None:
        end = next((t for t in self._ends.get(answer.device, ()) if t > answer.t), None)
        if end is None or self._is_known_stored(answer, end):
            return answer
        key = (answer.chat, answer.user, answer.ref)
        final = self._of.get(key)
        if final is not None:
            return msgspec.structs.replace(answer, seq=final.seq, ts=final.ts, mid=final.mid)
        code, asked = self._refused.get(key), self._asked.get(key)
        if code == "not_found" and self._was_removed(answer.user, answer.chat):
            return None
        is_change = asked is not None and asked.kind in _CHANGES
        target = self._at.get((answer.chat, asked.target)) if asked is not None else None
        if code == "conflict" and is_change and target is not None and target.deleted:
            return None
        if is_change and asked is not None and (asked.chat, asked.target) in self._lost_places:
            return None
        return answer

    def _was_removed(self, user: str, chat: str) -> bool:
        stays = self._stays.get(chat)
        return stays is not None and any(end is not None for _, end in stays.of.get(user, ()))

    def _is_known_stored(self, answer: Answered, end: float) -> bool:
        return any(
            answer.t <= mark.t < end and mark.upto >= answer.seq
            for mark in self._marks[answer.device, answer.chat]
        )


def _without_withdrawn(scenes: list[Scene]) -> list[Scene]:
    """Remove entries that devices received and then withdrew, because they are delivered again."""
    withdrawn: dict[tuple[str, str], int] = {}
    kept: list[Scene] = []
    for scene in reversed(scenes):
        match scene:
            case Withdrawn():
                key = (scene.device, scene.chat)
                withdrawn[key] = min(scene.after, withdrawn.get(key, scene.after))
            case Delivered() if scene.entry.seq > withdrawn.get((scene.device, scene.chat), 2**53):
                continue
            case _:
                kept.append(scene)
                continue
        kept.append(scene)
    return kept[::-1]
