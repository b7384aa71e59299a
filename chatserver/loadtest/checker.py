"""Judges every message that comes: lost, repeated, out of order, or not what was sent. No I/O.

A message is named by its *key*: the number of its sender and its own number there, both from 1. A
book of each chat has the key of each place, as acks and events tell it, all devices in one book; a
device has, of each of its chats, how far it is and which places before that are missing.
"""

from __future__ import annotations

import collections
from array import array
from collections.abc import Iterable
from typing import Final

EXAMPLES_MAX: Final = 20
MISSING_MAX: Final = 100_000  # places kept of one chat and device; what is beyond is lost at once
_NUMBER_BITS: Final = 40
KINDS: Final = ("lost", "duplicate", "disordered", "mismatched", "jumped")


def key_of(sender: int, number: int) -> int:
    """Return the key of a message."""
    return sender << _NUMBER_BITS | number


class Findings:
    """Counts of what went wrong, and the first examples."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter(dict.fromkeys(KINDS, 0))
        self.examples: list[str] = []

    def note(self, kind: str, text: str, count: int = 1) -> None:
        """Count something that must not be."""
        self.counts[kind] += count
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{kind}: {text}"[:300])


class Book:
    """The places of one chat, from the first one on that is checked. Memory: 9 bytes a message."""

    def __init__(self, chat: str, devices: int, findings: Findings) -> None:
        self.chat = chat
        self.devices = devices
        self.base = 0  # the last place before those that are checked
        self.acked = 0
        self._keys = array("q")
        self._is_acked = bytearray()
        self._findings = findings

    def put(self, place: int, key: int, *, is_ack: bool = False) -> None:
        """Note which message is at a place."""
        index = place - self.base - 1
        if index < 0:
            return
        if index >= len(self._keys):
            grown = index + 1 - len(self._keys)
            self._keys.extend([0] * grown)
            self._is_acked.extend(bytes(grown))
        known = self._keys[index]
        if not known:
            self._keys[index] = key
        elif known != key:
            text = (
                f"{self.chat} place {place} is message {_name(key)}, and {_name(known)} elsewhere"
            )
            self._findings.note("mismatched", text)
        if is_ack and not self._is_acked[index]:
            self._is_acked[index] = 1
            self.acked += 1

    def key_at(self, place: int) -> int:
        """Return the message at a place, 0 if it is not known."""
        index = place - self.base - 1
        return self._keys[index] if 0 <= index < len(self._keys) else 0

    @property
    def top(self) -> int:
        """The last place that is known."""
        return self.base + len(self._keys)

    def list_unseen(self, seen: Seen) -> list[int]:
        """Return the places of acked messages that a device has not seen."""
        late = range(max(seen.last or self.base, self.base) + 1, self.top + 1)
        places = [*sorted(seen.missing), *late]
        return [place for place in places if self._is_acked_at(place)]

    def _is_acked_at(self, place: int) -> bool:
        index = place - self.base - 1
        return 0 <= index < len(self._is_acked) and bool(self._is_acked[index])

    def finish(self, repeated: Iterable[int]) -> None:
        """Judge the chat as a whole: each message once, and each sender's in his order.

        `repeated`: keys that were offered again after a refusal; they may come later than what
        their sender said next.
        """
        loose = set(repeated)
        seen: set[int] = set()
        newest: dict[int, int] = {}
        for index, key in enumerate(self._keys):
            if not key:
                continue
            place = self.base + index + 1
            if key in seen:
                self._findings.note("duplicate", f"{self.chat} has message {_name(key)} twice")
            seen.add(key)
            sender = key >> _NUMBER_BITS
            if key < newest.get(sender, 0) and key not in loose:
                text = f"{self.chat} place {place}: {_name(key)} after {_name(newest[sender])}"
                self._findings.note("disordered", text)
            newest[sender] = max(key, newest.get(sender, 0))


class Seen:
    """How far one device is in one chat."""

    __slots__ = ("filled", "last", "missing")

    def __init__(self) -> None:
        self.last: int | None = None  # nothing came yet: the first place is taken as it is
        self.missing: set[int] = set()
        self.filled: set[int] = set()  # read from history; what is pushed too is no repetition

    def take(self, place: int, who: str, findings: Findings) -> bool:
        """Take a place that came; False if it had come before."""
        last = self.last
        if last is None or place == last + 1:
            self.last = place
            return True
        if place > last:
            first = max(last + 1, place - MISSING_MAX)
            self.missing.update(range(first, place))
            if first > last + 1:
                findings.note("lost", f"{who}: places {last + 1} to {first - 1}", first - last - 1)
            self.last = place
            return True
        if place in self.missing:
            self.missing.discard(place)
            findings.note("disordered", f"{who}: place {place} after {last}")
            return True
        if place in self.filled:
            self.filled.discard(place)
        else:
            findings.note("duplicate", f"{who}: place {place} again, at {last}")
        return False

    def fill(self, place: int) -> bool:
        """Take a place that was read from history, in its order; False if it had come before."""
        if self.last is not None and place <= self.last and place not in self.missing:
            return False
        self.missing.discard(place)
        self.last = max(self.last or 0, place)
        self.filled.add(place)
        return True


def _name(key: int) -> str:
    return f"{key >> _NUMBER_BITS}/{key & ((1 << _NUMBER_BITS) - 1)}"
