"""Delivery checker: detects lost, duplicate, reordered and corrupted messages. No I/O.

Each message has a *key*: the sender's number, and the message's number among that sender's
messages, both starting at 1. One `ChatRecord` per chat has the key of the message at each seq;
every ack and event must match it. Each device records its last seq per chat, and the missing seqs
below it.
"""

from __future__ import annotations

import collections
from array import array
from collections.abc import Iterable
from typing import Final

from chatserver.domain.seq_gap_checks import iter_repeats

EXAMPLES_MAX: Final = 20
# If one gap has more missing seqs than this, the oldest count as lost immediately.
MISSING_MAX: Final = 100_000
_NUMBER_BITS: Final = 40
KINDS: Final = ("lost", "duplicate", "disordered", "mismatched", "jumped")


def encode_key(sender: int, number: int) -> int:
    return sender << _NUMBER_BITS | number


class Findings:
    """Violation counts, and the first violations as examples."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter(dict.fromkeys(KINDS, 0))
        self.examples: list[str] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        self.counts[kind] += count
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{kind}: {text}"[:300])


class ChatRecord:
    """The message key at each checked seq of one chat, and whether it was acked."""

    def __init__(self, chat: str, devices: int, findings: Findings) -> None:
        self.chat = chat
        self.devices = devices
        self.base = 0  # Seqs up to this one are not checked.
        self.acked = 0
        self._keys = array("q")
        self._is_acked = bytearray()
        self._findings = findings

    def put(self, seq: int, key: int, *, is_ack: bool = False) -> None:
        """Record the message key at seq `seq`. It is a violation if the seq had another key."""
        index = seq - self.base - 1
        if index < 0:
            return
        if index >= len(self._keys):
            grown = index + 1 - len(self._keys)
            self._keys.extend([0] * grown)
            self._is_acked.extend(bytes(grown))
        earlier = self._keys[index]
        if not earlier:
            self._keys[index] = key
        elif earlier != key:
            text = (
                f"{self.chat} seq {seq} is message {_format_key(key)}, "
                f"but {_format_key(earlier)} elsewhere"
            )
            self._findings.add("mismatched", text)
        if is_ack and not self._is_acked[index]:
            self._is_acked[index] = 1
            self.acked += 1

    @property
    def top(self) -> int:
        return self.base + len(self._keys)

    def list_unseen(self, received: ReceivedSeqs) -> list[int]:
        late = range(max(received.last or self.base, self.base) + 1, self.top + 1)
        seqs = [*sorted(received.missing), *late]
        return [seq for seq in seqs if self._is_acked_at(seq)]

    def _is_acked_at(self, seq: int) -> bool:
        index = seq - self.base - 1
        return 0 <= index < len(self._is_acked) and bool(self._is_acked[index])

    def finish(self, retried: Iterable[int]) -> None:
        """Check that no message occurs twice, and that each sender's messages are in order.

        `retried` contains the keys of messages that were sent again after an error. These may come
        after messages that their sender sent later.
        """
        retried_keys = set(retried)
        for key in iter_repeats(filter(None, self._keys)):
            self._findings.add("duplicate", f"{self.chat} has message {_format_key(key)} twice")
        newest: dict[int, int] = {}
        for index, key in enumerate(self._keys):
            if not key:
                continue
            seq = self.base + index + 1
            sender = key >> _NUMBER_BITS
            if key < newest.get(sender, 0) and key not in retried_keys:
                before = _format_key(newest[sender])
                text = f"{self.chat} seq {seq}: {_format_key(key)} after {before}"
                self._findings.add("disordered", text)
            newest[sender] = max(key, newest.get(sender, 0))


class ReceivedSeqs:
    """The seqs of one chat that one device has received."""

    __slots__ = ("filled", "last", "missing")

    def __init__(self) -> None:
        self.last: int | None = None  # None: nothing has been received, so any seq is valid
        self.missing: set[int] = set()
        # Seqs loaded from history. The event may still arrive, and is then not a duplicate.
        self.filled: set[int] = set()

    def record_pushed(self, seq: int, user: str, findings: Findings) -> bool:
        """Record the seq of a received event; return False if it is a duplicate."""
        last = self.last
        if last is None or seq == last + 1:
            self.last = seq
            return True
        if seq > last:
            first = max(last + 1, seq - MISSING_MAX)
            self.missing.update(range(first, seq))
            if first > last + 1:
                findings.add("lost", f"{user}: seqs {last + 1} to {first - 1}", first - last - 1)
            self.last = seq
            return True
        if seq in self.missing:
            self.missing.discard(seq)
            findings.add("disordered", f"{user}: seq {seq} after {last}")
            return True
        if seq in self.filled:
            self.filled.discard(seq)
        else:
            findings.add("duplicate", f"{user}: seq {seq} again, after {last}")
        return False

    def record_loaded(self, seq: int) -> bool:
        """Record a seq loaded from history; return False if it was received before.

        Call in seq order.
        """
        if self.last is not None and seq <= self.last and seq not in self.missing:
            return False
        self.missing.discard(seq)
        self.last = max(self.last or 0, seq)
        self.filled.add(seq)
        return True


def _format_key(key: int) -> str:
    return f"{key >> _NUMBER_BITS}/{key & ((1 << _NUMBER_BITS) - 1)}"
