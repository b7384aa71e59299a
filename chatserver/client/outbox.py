"""Outbox: operations that the server must store (sends, edits, deletions, reactions). No I/O.

Each operation has a `ref`; retries with the same ref take effect once (guarantee P2). An operation
stays in the outbox until the server confirms that it is stored. In a new epoch, operations that
were only acked are sent again (guarantee P1). If the confirmation does not arrive, the client
sends a *probe*: it sends the acked operation again to learn whether it is stored.

    queued → in flight → acked → removed (stored)
      ↑__________|_________|     connection lost; new epoch

Operations are sent in the order in which they were added. If an operation is refused temporarily,
later queued operations of its chat wait for it; operations already in flight may overtake it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from chatserver.client.events import Acked, Event, Refused
from chatserver.client.request_queue import Fields, parse_error
from chatserver.domain.companion_ids import is_session_chat
from chatserver.errors import ChatError, Conflict, NotFound, Overloaded

PROBE_S = 5.0  # time from an ack to sending the operation again, if no `stored` arrives
PROBE_AGAIN_S = 20.0
RETRY_S = 1.0
COMPANION_RETRY_S_MAX = 60.0
PROBES_MAX = 4  # maximum acked operations sent again that have no response yet


class OutboxStage(enum.Enum):
    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    ACKED = "acked"


@dataclasses.dataclass(slots=True)
class OutboxEntry:
    """One operation. `fields` is its frame without the request number."""

    ref: str
    chat: str
    fields: dict[str, Any]
    stage: OutboxStage = OutboxStage.QUEUED
    seq: int = 0
    ts: int = 0
    mid: str = ""
    is_reported: bool = False  # True if the application has received the ack
    not_before: float = 0.0
    number: int = 0

    @property
    def is_delete_for_me(self) -> bool:
        """True for a deletion only for this user, which no `stored` frame confirms."""
        return self.fields["type"] == "delete" and self.fields.get("for") == "me"

    @property
    def is_stored_required(self) -> bool:
        """True if the application requested `durability` "stored"."""
        return bool(self.fields.get("durability") == "stored")


class Outbox:
    """The operations of one device, in order."""

    def __init__(self, operations_max: int) -> None:
        self._operations: dict[str, OutboxEntry] = {}
        self._operations_max = operations_max
        # `_operations` by stage, so that no method must search all operations.
        self._queued: dict[str, OutboxEntry] = {}
        self._in_flight: dict[str, OutboxEntry] = {}
        self._acked: dict[str, dict[str, OutboxEntry]] = {}  # chat → ref → operation
        self._last_number = 0
        # When to send acked operations again. The key is (chat, ref) for a deletion only for this
        # user, and (chat, "") for all other operations in the chat.
        self._probe_at: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._operations)

    def __iter__(self) -> Iterator[OutboxEntry]:
        return iter(self._operations.values())

    @property
    def unanswered(self) -> int:
        """The number of operations that wait for an ack."""
        return len(self._queued) + len(self._in_flight)

    def find(self, ref: str) -> OutboxEntry | None:
        return self._operations.get(ref)

    def put(self, operation: OutboxEntry) -> None:
        """Append an operation. Adding the same operation again has no effect.

        Raises:
            Conflict: the `ref` belongs to another operation.
            Overloaded: the outbox is full of operations that have not been stored yet.
        """
        existing = self._operations.get(operation.ref)
        if existing is not None:
            if existing.fields != operation.fields:
                raise Conflict(f"ref: {operation.ref} is already used for another request")
            return
        if len(self._operations) >= self._operations_max:
            raise Overloaded(
                f"{self._operations_max} sends are waiting to be stored; try again later"
            )
        self._last_number += 1
        operation.number = self._last_number
        self._operations[operation.ref] = operation
        if operation.stage is OutboxStage.ACKED:
            self._acked.setdefault(operation.chat, {})[operation.ref] = operation
            self._probe_at[_get_probe_key(operation)] = 0.0
        else:
            operation.stage = OutboxStage.QUEUED
            self._queued[operation.ref] = operation

    def next_sends(self, now: float, in_flight_max: int) -> list[OutboxEntry]:
        """Return the operations to send now, in order, and mark them as in flight."""
        room = in_flight_max - len(self._in_flight)
        blocked_chats: set[str] = set()
        sends: list[OutboxEntry] = []
        for operation in self._queued.values():
            if len(sends) >= room:
                break
            if operation.not_before > now:
                blocked_chats.add(operation.chat)
            elif operation.chat not in blocked_chats:
                sends.append(operation)
        for operation in sends:
            self._move(operation, OutboxStage.IN_FLIGHT)
        return sends

    def record_ack(
        self, ref: str, position: tuple[int, int, str], now: float, *, is_stored: bool
    ) -> OutboxEntry | None:
        """Record an ack with `(seq, ts, mid)`; return the operation if this is its first ack."""
        operation = self._operations.get(ref)
        if operation is None:
            return None
        operation.seq, operation.ts, operation.mid = position
        is_first, operation.is_reported = not operation.is_reported, True
        if is_stored:
            # Drop only this one: Redis may have lost operations that were acked earlier.
            self.drop(ref)
        elif operation.stage is not OutboxStage.ACKED:
            self._move(operation, OutboxStage.ACKED)
            self._probe_at.setdefault(_get_probe_key(operation), now + PROBE_S)
        return operation if is_first else None

    def postpone(self, ref: str, until: float) -> None:
        """Postpone an operation that was refused temporarily."""
        operation = self._operations.get(ref)
        if operation is not None and operation.stage is OutboxStage.IN_FLIGHT:
            operation.not_before = until
            self._requeue([operation])

    def drop(self, ref: str) -> None:
        operation = self._operations.pop(ref, None)
        if operation is not None:
            self._remove_from_stage(operation)

    def record_stored(self, chat: str, upto: int, now: float) -> None:
        """Remove the acked operations in `chat` up to seq `upto`: the server has stored them.

        Deletions only for this user stay: a `stored` frame does not confirm them.
        """
        acked = self._acked.get(chat)
        if acked is None:
            return
        if (chat, "") in self._probe_at:
            self._probe_at[chat, ""] = now + PROBE_S
        for ref in [ref for ref, d in acked.items() if d.seq <= upto and not d.is_delete_for_me]:
            self.drop(ref)

    def requeue_unanswered(self) -> None:
        """Requeue the operations in flight, which have no response yet."""
        self._requeue(list(self._in_flight.values()))

    def requeue_acked(self) -> None:
        """Requeue the operations that were acked but not stored, because they may be lost."""
        acked = [
            operation for operations in self._acked.values() for operation in operations.values()
        ]
        for operation in acked:
            operation.not_before = 0.0
        self._requeue(acked)

    def _requeue(self, operations: list[OutboxEntry]) -> None:
        for operation in operations:
            self._move(operation, OutboxStage.QUEUED)
        # Restore the original order: requeued operations are older than the queued ones.
        queued = sorted(self._queued.values(), key=lambda operation: operation.number)
        self._queued = {operation.ref: operation for operation in queued}

    def _move(self, operation: OutboxEntry, stage: OutboxStage) -> None:
        self._remove_from_stage(operation)
        operation.stage = stage
        match stage:
            case OutboxStage.QUEUED:
                self._queued[operation.ref] = operation
            case OutboxStage.IN_FLIGHT:
                self._in_flight[operation.ref] = operation
            case OutboxStage.ACKED:
                self._acked.setdefault(operation.chat, {})[operation.ref] = operation

    def _remove_from_stage(self, operation: OutboxEntry) -> None:
        self._queued.pop(operation.ref, None)
        self._in_flight.pop(operation.ref, None)
        self._probe_at.pop((operation.chat, operation.ref), None)
        acked = self._acked.get(operation.chat)
        if acked is not None:
            acked.pop(operation.ref, None)
            if all(other.is_delete_for_me for other in acked.values()):
                self._probe_at.pop((operation.chat, ""), None)
            if not acked:
                del self._acked[operation.chat]

    def get_unstored(self, chats_max: int) -> dict[str, int]:
        """Return `{chat: newest seq of an acked operation}` for at most `chats_max` chats."""
        newest: dict[str, int] = {}
        for chat, operations in reversed(self._acked.items()):
            seqs = [
                operation.seq for operation in operations.values() if not operation.is_delete_for_me
            ]
            if seqs and len(newest) < chats_max:
                newest[chat] = max(seqs)
        return newest

    def postpone_probes(self, chats: Iterable[str], now: float) -> None:
        """Postpone probes in these chats (see `next_probe`): `hello` asks for `stored` frames."""
        for chat in chats:
            if (chat, "") in self._probe_at:
                self._probe_at[chat, ""] = now + PROBE_S

    def next_probe(self, now: float) -> OutboxEntry | None:
        """Return an acked operation to send again, because its `stored` frame may have been lost.

        A retry with the same ref changes nothing. After the retry, the server sends `stored` again;
        for a deletion only for this user, the ack itself reports whether it is stored.
        """
        for (chat, ref), probe_time in self._probe_at.items():
            if probe_time <= now:
                self._probe_at[chat, ref] = now + PROBE_AGAIN_S
                acked = self._acked[chat]
                if ref:
                    return acked[ref]
                others = (
                    operation for operation in acked.values() if not operation.is_delete_for_me
                )
                return max(others, key=lambda operation: operation.seq)
        return None

    def list_acked(self, chat: str) -> list[OutboxEntry]:
        """Return the operations in a chat that have been acked but not confirmed as stored."""
        return list(self._acked.get(chat, {}).values())

    def schedule_probes(self, chat: str, now: float) -> None:
        """Schedule the next probes in a chat (see `next_probe`), `PROBE_S` from now."""
        for operation in self.list_acked(chat):
            self._probe_at[_get_probe_key(operation)] = now + PROBE_S

    def stop_probing(self, ref: str) -> None:
        """Stop sending an acked operation again: the server has refused it permanently."""
        operation = self._operations.get(ref)
        if operation is not None:
            self._probe_at.pop(_get_probe_key(operation), None)

    def list_due_times(self) -> list[float]:
        """Return the times at which to send postponed operations, and to send acked ones again."""
        postpone = [
            operation.not_before for operation in self._queued.values() if operation.not_before > 0
        ]
        return [*postpone, *self._probe_at.values()]


def _get_probe_key(operation: OutboxEntry) -> tuple[str, str]:
    return operation.chat, operation.ref if operation.is_delete_for_me else ""


@attrs.define(eq=False, repr=False, kw_only=True)
class OutboxSender:
    """Prepares the operations to send on one connection, and handles the responses.

    `is_left` returns whether the user has left a chat.
    """

    _outbox: Outbox
    _next_id: Callable[[], int]
    _emit: Callable[[Iterable[Event]], None]
    _is_left: Callable[[str], bool]
    # request number → ref
    _refs: dict[int, str] = attrs.field(factory=dict, init=False)
    # request numbers of acked operations sent again
    _probes: set[int] = attrs.field(factory=set, init=False)

    def handle_disconnect(self) -> None:
        self._refs.clear()
        self._probes.clear()
        self._outbox.requeue_unanswered()

    def next_frames(self, now: float, in_flight_max: int) -> list[Fields]:
        """Return the frames of queued operations, and of acked ones to send again, in order."""
        sends = self._outbox.next_sends(now, in_flight_max - len(self._probes))
        frames = [
            {**operation.fields, "id": self._assign_number(operation.ref)} for operation in sends
        ]
        while len(self._probes) < PROBES_MAX:
            probe = self._outbox.next_probe(now)
            if probe is None:
                break
            number = self._assign_number(probe.ref)
            self._probes.add(number)
            frames.append({**probe.fields, "id": number})
        return frames

    def _assign_number(self, ref: str) -> int:
        number = self._next_id()
        self._refs[number] = ref
        return number

    def handle_ack(self, frame: Fields, now: float) -> None:
        self._refs.pop(frame["id"], None)
        self._probes.discard(frame["id"])
        durability = frame["durability"]
        position = (frame["seq"], frame["ts"], frame["mid"])
        self.record_commit(frame["ref"], position, now, dup=frame["dup"], durability=durability)

    def record_commit(
        self, ref: str, position: tuple[int, int, str], now: float, *, dup: bool, durability: str
    ) -> None:
        """Record that an operation is committed with `(seq, ts, mid)`; emit `Acked` once."""
        operation = self._outbox.record_ack(ref, position, now, is_stored=durability == "stored")
        if operation is not None:
            self._emit([Acked(ref, operation.chat, *position, dup, durability)])

    def handle_error(self, frame: Fields, now: float) -> bool:
        """Handle an `error` frame; return False if it is not about an operation."""
        number = frame.get("id", -1)
        ref = self._refs.pop(number, None)
        if ref is None:
            return False
        error = parse_error(frame)
        operation = self._outbox.find(ref)
        if number in self._probes:
            self._probes.discard(number)
            if operation is not None and not error.temporary:
                self._end_probe(operation, error)
        elif error.temporary and not _is_too_late(operation, error):
            self._outbox.postpone(ref, now + (error.retry_after_ms or RETRY_S * 1000) / 1000)
        elif operation is not None:
            self._refuse(operation, error)
        return True

    def _end_probe(self, operation: OutboxEntry, error: ChatError) -> None:
        """Handle the permanent refusal of an acked operation, which may or may not be stored."""
        if not self._is_left(operation.chat):
            # While an invitation takes effect, the server does not find the chat. Only another
            # probe confirms a deletion for this user; for other operations, `stored` follows.
            if not (operation.is_delete_for_me and isinstance(error, NotFound)):
                self._outbox.stop_probing(operation.ref)  # sent again only in a new epoch
            return
        for ended in self._outbox.list_acked(operation.chat):
            self._refuse(ended, error)

    def _refuse(self, operation: OutboxEntry, error: ChatError) -> None:
        self._outbox.drop(operation.ref)
        self._emit([Refused(operation.ref, operation.chat, error)])


def _is_too_late(operation: OutboxEntry | None, error: ChatError) -> bool:
    """Return whether the message is for an AI companion and its retry would come too late."""
    is_question = operation is not None and is_session_chat(operation.chat)
    return is_question and (error.retry_after_ms or 0) > COMPANION_RETRY_S_MAX * 1000
