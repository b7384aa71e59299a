"""Sending of the outbox on one connection: which operations are in flight, and their answers.

A probe repeats an acked operation that is not known to be stored, to learn where it is. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chatserver.client.events import Acked, Event, Refused
from chatserver.client.outbox import Outbox, OutboxEntry
from chatserver.client.requests import Fields, error_of
from chatserver.domain.companion_ids import is_session_chat
from chatserver.errors import ChatError

RETRY_S = 1.0
QUESTION_WAITS_S = 60.0
PROBES_MAX = 4  # concurrent probes: each may wait seconds for the warm tier


class OutboxSender:
    """The operations in flight. `is_left` returns whether the user has left a chat."""

    def __init__(
        self,
        outbox: Outbox,
        next_id: Callable[[], int],
        emit: Callable[[Iterable[Event]], None],
        *,
        is_left: Callable[[str], bool],
    ) -> None:
        self._outbox = outbox
        self._next_id = next_id
        self._emit = emit
        self._is_left = is_left
        self._refs: dict[int, str] = {}  # by request number
        self._probes: set[int] = set()  # request numbers

    def disconnected(self) -> None:
        self._refs.clear()
        self._probes.clear()
        self._outbox.disconnected()

    def next_frames(self, now: float, in_flight_max: int) -> list[Fields]:
        """Return the operations and probes to send, in order."""
        offers = self._outbox.next_offers(now, in_flight_max - len(self._probes))
        frames = [{**deed.fields, "id": self._number(deed.ref)} for deed in offers]
        while len(self._probes) < PROBES_MAX:
            probe = self._outbox.next_probe(now)
            if probe is None:
                break
            number = self._number(probe.ref)
            self._probes.add(number)
            frames.append({**probe.fields, "id": number})
        return frames

    def _number(self, ref: str) -> int:
        number = self._next_id()
        self._refs[number] = ref
        return number

    def take_ack(self, frame: Fields, now: float) -> None:
        self._refs.pop(frame["id"], None)
        self._probes.discard(frame["id"])
        durability = frame["durability"]
        place = (frame["seq"], frame["ts"], frame["mid"])
        self.settle(frame["ref"], place, now, dup=frame["dup"], durability=durability)

    def settle(
        self, ref: str, place: tuple[int, int, str], now: float, *, dup: bool, durability: str
    ) -> None:
        """Record that an operation is committed as seq, ts and mid; report it once."""
        deed = self._outbox.acked(ref, place, now, is_stored=durability == "stored")
        if deed is not None:
            self._emit([Acked(ref, deed.chat, *place, dup, durability)])

    def take_error(self, frame: Fields, now: float) -> bool:
        """Handle an `error` frame; return False if it does not answer an operation or a probe."""
        number = frame.get("id", -1)
        ref = self._refs.pop(number, None)
        if ref is None:
            return False
        error = error_of(frame)
        deed = self._outbox.find(ref)
        if number in self._probes:
            self._probes.discard(number)
            if deed is not None and not error.temporary:
                self._end_probe(deed, error)
        elif error.temporary and not _is_too_late(deed, error):
            self._outbox.put_off(ref, now + (error.retry_after_ms or RETRY_S * 1000) / 1000)
        elif deed is not None:
            self._refuse(deed, error)
        return True

    def _end_probe(self, deed: OutboxEntry, error: ChatError) -> None:
        """Handle a permanently refused probe; whether the operation is stored remains unknown."""
        if not self._is_left(deed.chat):
            self._outbox.ask_no_more(deed.ref)  # it is sent again in a new epoch
            return
        for ended in self._outbox.list_acked(deed.chat):
            self._refuse(ended, error)

    def _refuse(self, deed: OutboxEntry, error: ChatError) -> None:
        self._outbox.drop(deed.ref)
        self._emit([Refused(deed.ref, deed.chat, error)])


def _is_too_late(deed: OutboxEntry | None, error: ChatError) -> bool:
    """Return whether the message is for an AI companion and its retry would come too late."""
    is_question = deed is not None and is_session_chat(deed.chat)
    return is_question and (error.retry_after_ms or 0) > QUESTION_WAITS_S * 1000
